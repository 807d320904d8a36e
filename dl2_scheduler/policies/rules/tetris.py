"""Tetris (Grandl et al., SIGCOMM 2014): what fits a node's free resources best, jobs with little left before others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import Amounts, FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.policies.rules.estimates import SpeedEstimates
from dl2_scheduler.policies.rules.minima import refuse_minima

_Scores = NDArray[np.float64]


@dataclass
class Tetris:
    """Node by node, each filled with bundles of one worker and one server, if the job has servers, while one fits.

    A job that needs more than that to run is given its minimum, on whatever nodes, where its first bundle would go.

    A bundle's score is its alignment with what is free on the node, plus the job's preference, which is scaled so that
    the means of both over the jobs are equal.

    Attributes:
        speeds: what is known of them.
        published: prefer the job with the most left, and leave a node at the first bundle that does not fit (the
            published code's faults), where otherwise jobs with the shortest remaining time are preferred, and only
            bundles that fit are looked at.
    """

    speeds: SpeedEstimates
    published: bool = False

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        if self.published:
            refuse_minima(snapshot)
        self.speeds.observe(snapshot.reports)
        if not snapshot.jobs:
            return room.allocation()
        bundles = np.array([w + s for w, s in zip(*room.demands, strict=True)])
        preference = self._preference(snapshot, bundles / np.maximum(room.capacity.max(axis=0, initial=0.0), 1e-12))
        shut = np.zeros(len(bundles), dtype=bool)
        for node in range(len(room.capacity)):
            self._fill(room, node, bundles, preference, shut)
        return room.allocation()

    def _fill(
        self, room: FreeResources, node: int, bundles: Amounts, preference: _Scores, shut: NDArray[np.bool_]
    ) -> None:
        """Fill one node; add to `shut` the jobs whose minimum does not fit."""
        whole = np.maximum(room.capacity[node], 1e-12)
        while True:
            open_jobs = ~shut & [_is_open(room, number) for number in range(len(bundles))]
            fits = (bundles <= room.free[node] + 1e-9).all(axis=1)
            candidates = open_jobs if self.published else open_jobs & fits
            if not candidates.any():
                return
            alignment = (room.free[node] / whole * (bundles / whole)).sum(axis=1)
            scale = alignment.mean() / preference.mean() if preference.mean() else 0.0
            scores = np.where(candidates, alignment + scale * preference, -np.inf)
            best = int(scores.argmax())
            if not fits[best]:
                return
            if room.workers(best) or room.least[best] == room.bundles[best]:
                room.give_on(best, node)
            else:
                shut[best] = not room.give_least(best)

    def _preference(self, snapshot: Snapshot, demand: Amounts) -> _Scores:
        if self.published:
            left = np.array([state.remaining_epochs / state.job.estimate for state in snapshot.jobs])
            return np.asarray(demand.sum(axis=1) * left)
        return 1 / np.array([self._work(state, size) for state, size in zip(snapshot.jobs, demand, strict=True)])

    def _work(self, state: JobState, demand: Amounts) -> float:
        """Return the remaining time at top speed times the resources of a bundle (Tetris, section 3.3)."""
        seconds = state.remaining_epochs * state.job.samples_per_epoch / float(self.speeds.grid(state.job).max())
        return seconds * float(demand.sum())


def _is_open(room: FreeResources, number: int) -> bool:
    """Return whether a job can use one more bundle."""
    job, (workers, servers) = room.snapshot.jobs[number].job, room.bundles[number]
    return room.workers(number) + workers <= job.max_workers and room.servers(number) + servers <= job.max_servers
