"""Tetris (Grandl et al., SIGCOMM 2014): what fits a node's free resources best, jobs with little left before others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import SLACK, Amounts, FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.policies.rules.estimates import SpeedEstimates
from dl2_scheduler.policies.rules.minima import refuse_minima

_Scores = NDArray[np.float64]
_Flags = NDArray[np.bool_]


@dataclass
class Tetris:
    """Node by node, each filled with bundles of one worker and one server, if the job has servers, while one fits.

    A job that needs more than that to run is given its minimum, on whatever nodes, where its first bundle would go. A
    bundle that fits no node, even an empty one, is given on whatever nodes where the first of its tasks would go. A job
    that has its maximum of one role gets tasks of the other.

    A bundle's score is its alignment with what is free on the node, plus the job's preference, which is scaled so that
    the means of both over the jobs are equal.

    Attributes:
        speeds: what is known of them.
        published: prefer the job with the most left, leave a node at the first bundle that does not fit, and give no
            job more than the smaller of its two maxima (the published code's faults), where otherwise jobs with the
            shortest remaining time are preferred, and only bundles that fit are looked at.
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
        bundles = _Bundles(room, self.published)
        preference = self._preference(
            snapshot, bundles.demands / np.maximum(room.capacity.max(axis=0, initial=0.0), 1e-12)
        )
        for node in range(len(room.capacity)):
            self._fill(room, node, bundles, preference)
        return room.allocation()

    def _fill(self, room: FreeResources, node: int, bundles: "_Bundles", preference: _Scores) -> None:
        """Fill one node."""
        whole = np.maximum(room.capacity[node], 1e-12)
        while True:
            open_jobs = ~bundles.shut & [self._is_open(room, number) for number in range(len(preference))]
            fits = bundles.fits(node)
            candidates = open_jobs if self.published else open_jobs & fits
            if not candidates.any():
                return
            alignment = (room.free[node] / whole * (bundles.demands / whole)).sum(axis=1)
            scale = alignment.mean() / preference.mean() if preference.mean() else 0.0
            scores = np.where(candidates, alignment + scale * preference, -np.inf)
            best = int(scores.argmax())
            if not fits[best]:
                return
            bundles.give(best, node)

    def _is_open(self, room: FreeResources, number: int) -> bool:
        """Return whether a job can use one more bundle."""
        bundle = room.next_bundle(number)
        return bundle == room.bundles[number] if self.published else bundle != (0, 0)

    def _preference(self, snapshot: Snapshot, demand: Amounts) -> _Scores:
        if self.published:
            left = np.array([state.remaining_epochs / state.job.estimate for state in snapshot.jobs])
            return np.asarray(demand.sum(axis=1) * left)
        return 1 / np.array([self._work(state, size) for state, size in zip(snapshot.jobs, demand, strict=True)])

    def _work(self, state: JobState, demand: Amounts) -> float:
        """Return the remaining time at top speed times the resources of a bundle (Tetris, section 3.3)."""
        seconds = state.remaining_epochs * state.job.samples_per_epoch / float(self.speeds.grid(state.job).max())
        return seconds * float(demand.sum())


class _Bundles:
    """The bundles are what each job gets next.

    Args:
        room: that is filled.
        published: all have both roles always, on one node, as the published code has it.

    Attributes:
        demands: of each job's next bundle, and of its last where it has its maxima, (jobs, resources).
        shut: jobs for which there is no room any more, (jobs,).
    """

    def __init__(self, room: FreeResources, published: bool):
        self._room, self._published = room, published
        self.demands: Amounts = np.array([worker + server for worker, server in zip(*room.demands, strict=True)])
        self.shut: _Flags = np.zeros(len(self.demands), dtype=bool)
        self._roles = np.array(room.demands)  # (roles, jobs, resources)
        self._apart: _Flags = np.array([self._is_apart(number) for number in range(len(self.demands))], dtype=bool)

    def _is_apart(self, number: int) -> bool:
        """Return whether a job's next bundle fits no node, even an empty one."""
        return not self._published and not (self.demands[number] <= self._room.capacity + SLACK).all(axis=1).any()

    def fits(self, node: int) -> _Flags:
        """Return which bundles fit on a node, or a task of those that lie on several, (jobs,)."""
        free = self._room.free[node] + SLACK
        fits: _Flags = (self.demands <= free).all(axis=1)
        if self._apart.any():
            fits |= self._apart & (self._roles <= free).all(axis=2).any(axis=0)
        return fits

    def give(self, number: int, node: int) -> None:
        """Give a job its next bundle on a node, or its minimum on any; shut it out where there is no room for it."""
        room = self._room
        if not room.workers(number) and (self._apart[number] or room.least[number] != room.bundles[number]):
            self.shut[number] = not room.give_least(number)
        elif self._apart[number]:
            self.shut[number] = not room.give_next(number)
        else:
            room.give_on(number, node)
        bundle = room.next_bundle(number)
        if not self._published and bundle not in ((0, 0), room.bundles[number]):  # one of its roles is at its maximum
            workers, servers = bundle
            self.demands[number] = workers * self._roles[0, number] + servers * self._roles[1, number]
            self._apart[number] = False
