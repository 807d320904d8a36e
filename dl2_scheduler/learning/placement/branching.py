"""This module finds out what choices are worth: from one state, many clusters go on with different ones.

A trunk of clusters is run by the policy. From time to time each of them is copied: the copies draw the places of one
interval's jobs by their probabilities, and then all go on with the best choices. What a copy's jobs spend less time in
the system than the other copies', is what its choices were worth. Nothing else differs, so that it takes no value
network and few copies to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.learning.placement.fresh_jobs import FreshJobs
from dl2_scheduler.learning.placement.lockstep.clusters import spent
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep, Mask
from dl2_scheduler.learning.placement.policy_gradient import PlacementExperience
from dl2_scheduler.policies.learnt.placer import F32, LearntPlacer, best_of
from dl2_scheduler.sim.placed.scenario import Scenario

_SPREAD = 25
"""Intervals: within the first of these each cluster of a trunk is copied first, so that not all begin together."""


@dataclass(frozen=True)
class BranchSettings:
    """These `BranchSettings` say how choices are compared.

    Attributes:
        states: clusters of the trunk, each of which is copied for an update.
        branches: copies of each.
        horizon: intervals that a copy runs.
        stride: intervals at most that a cluster runs between two updates, 1 to so many, all alike.
        discount: of an interval's cost, for each interval since the choice.
    """

    states: int = 96
    branches: int = 6
    horizon: int = 8
    stride: int = 3
    discount: float = 0.9


@dataclass
class _Drawn:
    """This is what a policy read for choices that it drew, and what these were; each list has one entry a round."""

    inputs: list[tuple[F32, F32, Mask]] = field(default_factory=list)
    chosen: list[Ints] = field(default_factory=list)
    logs: list[F32] = field(default_factory=list)
    cluster: list[Ints] = field(default_factory=list)

    def experience(self, worth: Floats) -> PlacementExperience:
        """Return all of it, with what each cluster's choices were worth, (clusters,)."""
        groups, job, allowed = (torch.from_numpy(np.concatenate([each[n] for each in self.inputs])) for n in range(3))
        of_choice = worth[np.concatenate(self.cluster)].astype(np.float32)
        chosen, logs = (torch.from_numpy(np.concatenate(each)) for each in (self.chosen, self.logs))
        return PlacementExperience(groups, job, allowed, chosen, logs, torch.from_numpy(of_choice))


class Trunk:
    """A `Trunk` is many clusters that a policy runs; where one's jobs have all ended, others' begin.

    Args:
        scenarios: whose jobs come, in turn; all in the same clusters and world.
        settings: see `BranchSettings`.
        seed: see `FreshJobs`, and of the draws.
    """

    def __init__(self, scenarios: Sequence[Scenario], settings: BranchSettings, seed: int):
        self._scenarios, self._settings, self._fresh = scenarios, settings, FreshJobs(scenarios, seed)
        self._rng = np.random.default_rng(seed)
        self._lockstep = Lockstep.begun(scenarios[0], self._fresh.of(np.arange(settings.states)))
        self._until = self._rng.integers(_SPREAD, size=settings.states)

    def grow(self, policy: LearntPlacer) -> PlacementExperience:
        """Run the trunk on, and return what the policy's choices in its copies were worth."""
        self._advance(policy)
        branches, settings = self._settings.branches, self._settings
        copies = self._lockstep.copies(np.repeat(np.arange(settings.states), branches))
        begin = copies.clusters.interval.copy()
        drawn = self._run(copies, policy, begin)
        weights = settings.discount ** np.arange(settings.horizon)
        cost = (spent(copies.clusters, begin, settings.horizon) @ weights).reshape(-1, branches)
        self._until = begin[::branches] + self._rng.integers(1, settings.stride + 1, size=settings.states)
        return drawn.experience(self._in_deviations(cost.mean(axis=1, keepdims=True) - cost).ravel())

    def _in_deviations(self, worth: Floats) -> Floats:
        """Return worths, (states, branches), over the deviation that those of the same scenario have."""
        found, turns = np.empty_like(worth), len(self._scenarios)
        for turn in range(turns):
            found[turn::turns] = worth[turn::turns] / (np.sqrt((worth[turn::turns] ** 2).mean()) + 1e-8)
        return found

    def _run(self, copies: Lockstep, policy: LearntPlacer, begin: Ints) -> _Drawn:
        """Run copies, and return the choices that were drawn.

        Args:
            copies: at their first tasks.
            policy: decides.
            begin: interval in which each draws its choices, (copies,).
        """
        drawn = _Drawn()

        def decide(groups: F32, job: F32, allowed: Mask, which: Ints) -> Ints:
            scores = np.where(allowed, policy.scores_of(groups, job), np.float32(-np.inf))
            chosen = best_of(scores, allowed)
            draws = np.flatnonzero(copies.clusters.interval[which] == begin[which])
            if len(draws):
                of_draws = scores[draws]
                chosen[draws] = (of_draws + self._rng.gumbel(size=of_draws.shape)).argmax(axis=1)
                logs = of_draws - of_draws.max(axis=1, keepdims=True)
                logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
                drawn.inputs.append((groups[draws], job[draws], allowed[draws]))
                drawn.chosen.append(chosen[draws])
                drawn.logs.append(logs[np.arange(len(draws)), chosen[draws]])
                drawn.cluster.append(which[draws])
            return chosen

        copies.run(decide, lambda each: each.clusters.interval >= begin + self._settings.horizon)
        return drawn

    def _advance(self, policy: LearntPlacer) -> None:
        """Run the trunk to where it is copied next; ended clusters get other jobs."""
        while True:
            self._lockstep.run(
                lambda groups, job, allowed, _: policy.best_of(groups, job, allowed),
                lambda each: each.clusters.interval >= self._until,
            )
            ended = np.flatnonzero(~self._lockstep.active)
            if not len(ended):
                return
            self._lockstep.replace(ended, Lockstep.begun(self._scenarios[0], self._fresh.of(ended)))
            self._until[ended] = self._rng.integers(self._settings.stride + 1, size=len(ended))
