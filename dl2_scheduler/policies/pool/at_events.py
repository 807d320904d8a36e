"""This module wakes a policy at events, and has Optimus's climb by pairs of a worker and a server."""

import heapq
from dataclasses import dataclass, field

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PolicyTrigger
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.cluster.speeds import Grid
from dl2_scheduler.policies.rules.estimates import SpeedEstimates
from dl2_scheduler.policies.rules.optimus import costs_of


@dataclass
class AtEvents:
    """See `AllocationPolicy`: another one, asked when a job arrives and when one ends.

    Attributes:
        policy: that decides.
        trigger: when it is asked.
    """

    policy: AllocationPolicy
    trigger: PolicyTrigger = field(default=PolicyTrigger.EVENT, init=False)

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        return self.policy.allocate(snapshot, room)


@dataclass
class OptimusPairs:
    """This policy climbs as Optimus does, by the seconds saved for the dominant share, but gives both roles together.

    Attributes:
        speeds: as of `Optimus`.
    """

    speeds: SpeedEstimates

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        self.speeds.observe(snapshot.reports)
        times = [self._times(state) for state in snapshot.jobs]
        costs = costs_of(room, [worker + server for worker, server in zip(*room.demands, strict=True)])
        queue = [(-np.inf, number) for number in range(len(times))]  # a job that has nothing comes first, the oldest
        while queue:
            _, number = heapq.heappop(queue)
            had = room.workers(number)
            if not (room.give(number, 1, 1) if had else room.give_least(number)):
                continue
            gain = self._gain(times[number], room.workers(number), room.servers(number)) / costs[number]
            if gain > 0:
                heapq.heappush(queue, (-gain, number))
        return room.allocation()

    def _times(self, state: JobState) -> Grid:
        """Return the seconds that a job still needs, by (servers, workers)."""
        with np.errstate(divide="ignore"):
            return state.remaining_epochs * state.job.samples_per_epoch / np.maximum(self.speeds.grid(state.job), 0.0)

    @staticmethod
    def _gain(times: Grid, workers: int, servers: int) -> float:
        """Return the seconds by which one more pair shortens a job; 0: there is none to give."""
        if servers + 1 >= times.shape[0] or workers + 1 >= times.shape[1]:
            return 0.0
        now, then = times[servers, workers], times[servers + 1, workers + 1]
        return float(now - then) if then < now else 0.0
