"""The policy at work in one cluster, slot by slot, and the samples that come of it (DL2, sections 3.2 and 4.3)."""

from collections.abc import Sequence

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import Cluster, JobOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.learning.paper.experience import Floats, PaperExperience
from dl2_scheduler.policies.learnt.actions import STOP, Ints
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.paper.batched import CHANGING, Mask, Slot, row_width, slot_of, write_row
from dl2_scheduler.policies.learnt.paper.exploration import Exploration
from dl2_scheduler.policies.learnt.paper.policy import NOT_FORCED, allocation, fill, first_of, new_trail
from dl2_scheduler.policies.learnt.paper.weights import PaperWeights


class Agent:
    """Acts in a cluster, which may be simulated or live.

    Args:
        cluster: at the start of a slot.
        rule: by which tasks find their node.
    """

    def __init__(self, cluster: Cluster, rule: NodeRule = NodeRule.SPREAD):
        self.cluster = cluster
        self._rule = rule
        self._begun: tuple[Snapshot, Slot] | None = None

    def begin(self, weights: PaperWeights) -> tuple[Snapshot, Slot] | None:
        """Return the next slot in which there are jobs, at its start, or None where none will come."""
        while self._begun is None and not self.cluster.done:
            now = self.cluster.snapshot()
            if now.jobs:
                self._begun = now, slot_of(FreeResources(now, self._rule), weights.models, weights.minimum)
            else:
                self.cluster.apply(Allocation())
                self.cluster.finish_slot()
        return self._begun

    def step(
        self, weights: PaperWeights, random: np.random.Generator, epsilon: float, job_reward: bool, guided: bool = False
    ) -> tuple[PaperExperience, float]:
        """Fill and run the slot that has begun; its samples, and its reward (eq. 1).

        Args:
            weights: of the policy.
            random: draws actions.
            epsilon: probability that a poor state is mended.
            job_reward: see `PaperSettings`.
        """
        begun = self.begin(weights)
        assert begun is not None, "no job is left"
        self._begun, (now, slot) = None, begun
        trail = new_trail(slot, weights.places, True)
        draws = random.random((len(trail.actions), 2))
        trail = first_of(
            trail, fill(slot, weights.layers, Exploration(draws, epsilon, guided), False, NOT_FORCED, trail)
        )
        self.cluster.apply(allocation(now, slot))
        progress = progress_of(now, self.cluster.finish_slot().jobs)
        rewards = np.full(len(trail.actions), progress.sum())
        if job_reward:
            rewards = np.where(trail.jobs == STOP, progress.mean(), progress[trail.jobs])
        following, final = self._following(weights, trail.batches)
        samples = PaperExperience(trail.states, trail.masks, trail.actions, rewards, following, final)
        return samples, float(progress.sum())

    def _following(self, weights: PaperWeights, batches: Ints) -> tuple[F32, Mask]:
        """Return what each batch sees first in the next slot, and whether there is none."""
        begun = self.begin(weights)
        if begun is None:
            width = row_width(len(weights.models))
            return np.zeros((len(batches), weights.places, width), np.float32), np.ones(len(batches), dtype=np.bool_)
        seen = first_states(begun[1], weights.places)
        return seen[np.minimum(batches, len(seen) - 1)], np.zeros(len(batches), dtype=np.bool_)


def first_states(slot: Slot, places: int) -> F32:
    """Return what each batch of a slot sees at its start, (batches, J, row_width)."""
    jobs = len(slot.counts)
    states = np.zeros((-(-jobs // places), places, slot.fixed.shape[1] + CHANGING), dtype=np.float32)
    for job in range(jobs):
        write_row(slot, job, places, states[job // places, job % places])
    return states


def progress_of(now: Snapshot, outcomes: Sequence[JobOutcome]) -> Floats:
    """Return the part of its epochs, as its owner said them, that each job trained (eq. 1); each epoch counts once."""
    trained = {outcome.id: outcome.epochs - outcome.again for outcome in outcomes}
    return np.array([trained.get(state.job.id, 0.0) / state.job.estimate for state in now.jobs])
