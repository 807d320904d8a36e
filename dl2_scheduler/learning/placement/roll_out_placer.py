"""This module looks ahead: it tries many ways to place an interval's jobs and takes the one after which least is spent.

The learnt policy proposes the ways and decides in all later intervals; jobs that come there are drawn, the same for all
ways. It takes a tenth of a second an interval, where the policy alone takes a tenth of a millisecond a task.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.learning.placement.lockstep.clusters import LockstepClusters, clusters_of, spent
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep, Mask
from dl2_scheduler.learning.placement.lockstep.view import cluster_of
from dl2_scheduler.policies.learnt.placer import F32, LearntPlacer, PlacerInputs, best_of, place_by
from dl2_scheduler.policies.placement.greedy_fill import JobOrder
from dl2_scheduler.sim.placed.scenario import Scenario

_DRAWN = 4_000_000
"""Seed of the jobs that may come, which nobody is judged by."""
_KEPT = 128
"""Sequences of them that are kept to draw from."""
_OF_JOBS = (
    *("model", "asked", "demand", "arrival", "work", "computing", "left"),
    *("rate", "finish", "phase", "own", "first", "order"),
)
"""Arrays of `LockstepClusters` whose second axis are jobs."""


@dataclass(frozen=True)
class RollOutSettings:
    """These `RollOutSettings` say how far and how widely a policy looks ahead.

    Attributes:
        ways: to place the interval's jobs; the first is the policy's own.
        futures: that each way meets, the same ones.
        intervals: that are looked ahead.
        discount: of an interval's cost, for each interval from now.
        spread: of the ways: 1 draws choices by their probabilities, more draws unlikely ones more often.
    """

    ways: int = 64
    futures: int = 8
    intervals: int = 5
    discount: float = 0.95
    spread: float = 2.0


class RollOutPlacer:
    """See `PlacementPolicy`: what a learnt policy proposes is tried in the world of a fitted model of speeds.

    Args:
        placer: the learnt policy.
        scenarios: whose jobs may come, in turn; all in the same clusters and fitted model of speeds.
        settings: see there.
    """

    def __init__(
        self, placer: LearntPlacer, scenarios: Sequence[Scenario], settings: RollOutSettings = RollOutSettings()
    ):
        self._placer, self._scenarios, self._settings = placer, scenarios, settings

    @cached_property
    def _coming(self) -> LockstepClusters:
        """Jobs that come in the next intervals, in many futures."""
        turns = len(self._scenarios)
        sequences = [self._scenarios[number % turns].jobs(_DRAWN + number) for number in range(_KEPT)]
        found = clusters_of(self._scenarios[0], sequences)
        most = int((found.arrival + 1 < self._settings.intervals).sum(axis=1).max())
        cut = {name: getattr(found, name)[:, :most] for name in _OF_JOBS}
        return found._replace(**cut)._replace(arrival=cut["arrival"] + 1)

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`; where the world is none of lockstep's, the policy decides alone.

        So it does in another cluster than that of the scenarios, where a job has an unknown model, misses a part of its
        tasks, or may not go everywhere, and where nothing is to be placed.
        """
        if not np.array_equal(view.machines.capacity, self._scenarios[0].machines.capacity):
            return self._placer.place(view)
        runs = np.bincount(view.placed.job, minlength=len(view.jobs)) > 0
        misses = view.missing.any(axis=1)
        if not misses.any() or (runs & misses).any() or view.allowed is not None or (view.placed.model < 0).any():
            return self._placer.place(view)
        rng = np.random.default_rng(zlib.crc32(view.free.tobytes() + view.work_left.tobytes()))
        plan = iter(self._plan(self._begun(view, rng), rng))

        def choose(inputs: PlacerInputs) -> int | None:
            chosen = next(plan) if inputs.allowed[:-1].any() else len(inputs.groups)
            return None if chosen == len(inputs.groups) else chosen

        return place_by(view, choose)

    def _begun(self, view: PlacementView, rng: np.random.Generator) -> Lockstep:
        """Return copies of the view's cluster for each way and future, one way's futures beside each other."""
        here, settings = cluster_of(view, JobOrder.SHORTEST), self._settings
        future = np.tile(rng.choice(_KEPT, settings.futures, replace=False), settings.ways)
        copies = here.rows(np.zeros(len(future), dtype=np.int64))
        coming = self._coming
        joined = {
            name: np.concatenate([getattr(copies, name), getattr(coming, name)[future]], axis=1) for name in _OF_JOBS
        }
        found = Lockstep(self._scenarios[0], copies._replace(**joined))
        found.choose(np.full(len(future), -1))
        return found

    def _plan(self, copies: Lockstep, rng: np.random.Generator) -> list[int]:
        """Return the choices for the tasks of this interval after which least is spent."""
        settings, rounds = self._settings, list[tuple[Ints, Ints]]()

        def decide(groups: F32, job: F32, allowed: Mask, which: Ints) -> Ints:
            scores = self._placer.scores_of(groups, job)
            if (now := copies.clusters.interval[which] == 0).any():
                noise = settings.spread * rng.gumbel(size=(settings.ways, scores.shape[1]))
                noise[0] = 0.0
                scores[now] += noise[which[now] // settings.futures]
            chosen = best_of(scores, allowed)
            rounds.append((which[now], chosen[now]))
            return chosen

        copies.run(decide, lambda each: each.clusters.interval >= settings.intervals)
        best = int(self._costs(copies).argmin()) * settings.futures
        return [int(chosen[which == best][0]) for which, chosen in rounds if (which == best).any()]

    def _costs(self, copies: Lockstep) -> Floats:
        """Return what jobs spend in the system after each way, in the mean of its futures, (ways,)."""
        settings, begin = self._settings, np.zeros(len(copies.active), dtype=np.int64)
        weights = settings.discount ** np.arange(settings.intervals)
        cost = spent(copies.clusters, begin, settings.intervals) @ weights
        found: Floats = cost.reshape(settings.ways, -1).mean(axis=1)
        return found
