"""This module teaches the paper's network the decisions of a scheduler (DL2, section 4.2)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.learning.paper.networks import PaperPolicy
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, SERVER, WORKER, Ints
from dl2_scheduler.policies.learnt.paper.batched import slot_of
from dl2_scheduler.policies.learnt.paper.exploration import BEST
from dl2_scheduler.policies.learnt.paper.policy import fill, new_trail
from dl2_scheduler.policies.learnt.paper.weights import PaperWeights

LEARNING_RATE = 0.005
_BATCH = 256


class ImitationLoss(StrEnum):
    """These are the losses that section 6.5 compares."""

    CROSS_ENTROPY = "cross-entropy"
    MEAN_SQUARE = "mean-square"
    ABSOLUTE_DIFFERENCE = "absolute-difference"


class TeacherDecisions(NamedTuple):
    """These are a scheduler's decisions, as the network would have made them; arrays are by inference.

    Attributes:
        states: what the network would have seen, (inferences, J, row_width).
        masks: what was allowed, (inferences, 3 J + 1).
        actions: what was done.
    """

    states: NDArray[Any]
    masks: NDArray[Any]
    actions: NDArray[Any]


def decisions(
    taught: Iterable[tuple[Snapshot, Ints]], weights: PaperWeights, kept: int, random: np.random.Generator
) -> TeacherDecisions:
    """Return the decisions that a teacher took in some slots.

    Args:
        taught: slots, and the teacher's actions, job * 3 + action, as `PolicyTeacher` has them.
        weights: of the network that is to learn; what it would do is of no account.
        kept: inferences of each slot that are kept, drawn at random: those of one slot are nearly alike.
        random: draws them.
    """
    parts = []
    for now, actions in taught:
        slot = slot_of(FreeResources(now, NodeRule.SPREAD), weights.models, weights.minimum)
        forced = beyond_minimum(actions, len(now.jobs)) if weights.minimum else actions
        trail = new_trail(slot, weights.places, True)
        count = fill(slot, weights.layers, BEST, True, forced, trail)
        chosen = random.permutation(count)[:kept]
        parts.append(TeacherDecisions(trail.states[chosen], trail.masks[chosen], trail.actions[chosen]))
    return TeacherDecisions(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def beyond_minimum(actions: Ints, jobs: int) -> Ints:
    """Return actions without the first worker and the first server of each job, which the slot begins with."""
    due = np.ones((jobs, 2), dtype=bool)
    left = []
    for action in actions.tolist():
        job, kind = divmod(action, ACTIONS)
        wanted = np.array([kind != SERVER, kind != WORKER])
        more = wanted & ~due[job]
        due[job] &= ~wanted
        if more.any():
            left.append(job * ACTIONS + (BOTH if more.all() else WORKER if more[0] else SERVER))
    return np.array(left, dtype=np.int64)


def imitate(
    policy: PaperPolicy, taught: TeacherDecisions, epochs: int, seed: int, loss: ImitationLoss
) -> Iterator[float]:
    """Learn a teacher's decisions, with jobs at other places each time; yields each epoch's mean loss.

    Args:
        policy: to be changed; it is ready to decide after each epoch.
        taught: by the teacher.
        epochs: passes over all of them.
        seed: of their order and of the jobs' places.
        loss: of a mini-batch.
    """
    random = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        policy.train()
        total = 0.0
        batches = np.array_split(random.permutation(len(taught.actions)), -(-len(taught.actions) // _BATCH))
        for numbers in batches:
            found = _loss(policy, shuffled(TeacherDecisions(*(part[numbers] for part in taught)), random), loss)
            optimizer.zero_grad()
            found.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(found.detach()) * len(numbers)
        policy.eval()
        yield total / len(taught.actions)


def shuffled(taught: TeacherDecisions, random: np.random.Generator) -> TeacherDecisions:
    """Return the same decisions with the jobs of each at other places."""
    samples, places = taught.states.shape[:2]
    order = random.random((samples, places)).argsort(axis=1)  # which job comes to each place
    states = np.take_along_axis(taught.states, order[:, :, None], axis=1)
    whose = (order[:, :, None] * ACTIONS + np.arange(ACTIONS)).reshape(samples, -1)
    whose = np.concatenate([whose, np.full((samples, 1), places * ACTIONS)], axis=1)
    masks = np.take_along_axis(taught.masks, whose, axis=1)
    actions = (whose == taught.actions[:, None]).argmax(axis=1)
    return TeacherDecisions(states, masks, actions)


def _loss(policy: PaperPolicy, taught: TeacherDecisions, loss: ImitationLoss) -> Tensor:
    logs = policy.logs(torch.from_numpy(taught.states), torch.from_numpy(taught.masks))
    return _LOSSES[loss](logs, torch.from_numpy(taught.actions))


def _cross_entropy(logs: Tensor, actions: Tensor) -> Tensor:
    return torch.nn.functional.nll_loss(logs, actions)


def _missed(logs: Tensor, actions: Tensor) -> Tensor:
    """Return by how much each probability differs from the teacher's, which are 0 and 1."""
    return logs.exp() - torch.nn.functional.one_hot(actions, logs.shape[1])


_LOSSES: Mapping[ImitationLoss, Callable[[Tensor, Tensor], Tensor]] = {
    ImitationLoss.CROSS_ENTROPY: _cross_entropy,
    ImitationLoss.MEAN_SQUARE: lambda logs, actions: _missed(logs, actions).square().mean(),
    ImitationLoss.ABSOLUTE_DIFFERENCE: lambda logs, actions: _missed(logs, actions).abs().mean(),
}
