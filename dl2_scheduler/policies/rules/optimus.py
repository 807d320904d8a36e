"""Optimus (Peng et al., EuroSys 2018) gives one task at a time to the job whose remaining time it shortens most."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dl2_scheduler.cluster.free_resources import Amounts, FreeResources, dominant_shares
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.cluster.speeds import Grid
from dl2_scheduler.policies.rules.estimates import SpeedEstimates
from dl2_scheduler.policies.rules.minima import refuse_minima

_Step = tuple[float, int, int, int]  # minus the gain for what it takes, the job's index, workers and servers to add
_Costs = tuple[float, float]  # of a worker and of a server

_LACKING = -np.inf  # a job that lacks a role comes before every gain, the oldest first
_LEAST_COST = 1e-12


@dataclass
class Optimus:
    """This policy is greedy by marginal gain: the seconds that a task saves, divided by its dominant share.

    So it chooses between a worker and a server, and between jobs. Its authors' code (pengyanghua/optimus) divides by
    the amount of the dominant resource, which is the same where a cluster has as much of each.

    Attributes:
        speeds: fitted online in its paper; true ones in the published code.
        published: as DL2's published code has it: by the bare seconds; a task that does not fit the least used node
            ends the slot; and a job whose better role has its maximum gets nothing more, not even of the other.
    """

    speeds: SpeedEstimates
    published: bool = False

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        if self.published:
            refuse_minima(snapshot)
        self.speeds.observe(snapshot.reports)
        times, costs = [self._times(state) for state in snapshot.jobs], self._costs(room)
        numbers = range(len(times))
        queue = [step for number in numbers for step in self._next(room, times[number], costs[number], number)]
        heapq.heapify(queue)
        while queue:
            _, number, workers, servers = heapq.heappop(queue)
            if room.give(number, workers, servers):
                for step in self._next(room, times[number], costs[number], number):
                    heapq.heappush(queue, step)
            elif self.published and not self._is_full(room, number, workers, servers):
                break
        return room.allocation()

    def _times(self, state: JobState) -> Grid:
        """Return the seconds that a job still needs, by (servers, workers).

        The published code looks beyond the maxima.
        """
        job = state.job
        if self.published:
            job = replace(job, max_workers=job.max_workers + 1, max_servers=job.max_servers + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return state.remaining_epochs * job.samples_per_epoch / self.speeds.grid(job)

    def _costs(self, room: FreeResources) -> list[_Costs]:
        """Return of each job what a gain in seconds is divided by where a worker, and where a server, brings it."""
        if self.published:
            return [(1.0, 1.0)] * len(room.least)
        return list(zip(*(costs_of(room, demands) for demands in room.demands), strict=True))

    @staticmethod
    def _next(room: FreeResources, time: Grid, costs: _Costs, number: int) -> list[_Step]:
        """Return the better of the job's next steps, if one is a gain.

        Args:
            room: that is filled.
            time: see `_times`.
            costs: see `_costs`.
            number: the job's index.
        """
        workers, servers = room.workers(number), room.servers(number)
        if not workers and room.least[number] != (1, 1):
            return [(_LACKING, number, *room.least[number])]
        if not workers:
            return [(_LACKING, number, 1, 0)]
        if not servers and room.bundles[number] == (1, 1):
            return [(_LACKING, number, 0, 1)]
        gains, now = [], time[servers, workers]
        if servers + 1 < len(time):
            gains.append((_gain(now, time[servers + 1, workers]) / costs[1], 0, 1))
        if workers + 1 < time.shape[1]:
            gains.append((_gain(now, time[servers, workers + 1]) / costs[0], 1, 0))
        if not gains:
            return []
        gain, more_workers, more_servers = max(gains, key=lambda each: each[0])  # the server's where they are equal
        return [(-gain, number, more_workers, more_servers)] if gain > 0 else []

    @staticmethod
    def _is_full(room: FreeResources, number: int, workers: int, servers: int) -> bool:
        job = room.snapshot.jobs[number].job
        return room.workers(number) + workers > job.max_workers or room.servers(number) + servers > job.max_servers


def costs_of(room: FreeResources, demands: Sequence[Amounts]) -> list[float]:
    """Return the dominant shares by which gains are divided, of each of some demands; none is 0."""
    shares = dominant_shares(np.array(demands).reshape(len(demands), room.capacity.shape[1]), room.capacity.sum(axis=0))
    return np.maximum(shares, _LEAST_COST).tolist()  # type: ignore[no-any-return]


def _gain(now: float, then: float) -> float:
    """Return the seconds by which a step shortens what a job still needs; 0: by none, also where both never end."""
    return float(now - then) if then < now else 0.0
