"""Here the paper's policy explores while it learns: other actions take the place of drawn ones (DL2, section 4.3)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, NOTHING, SERVER, WORKER
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.paper.batched import Mask, Slot

Floats = NDArray[np.float64]

UNEVEN = 10
"""A job with so many times more of one role than of the other is in a poor state (section 4.3)."""


class Exploration(NamedTuple):
    """An `Exploration` says how the actions of a slot are drawn.

    Attributes:
        draws: two uniform random numbers for each inference: of the action, and of what takes its place; none: the best
            actions are taken.
        epsilon: probability of a repair where one is due.
        guided: whether `guide` has a say.
    """

    draws: Floats
    epsilon: float
    guided: bool


BEST = Exploration(np.zeros((0, 2)), 0.0, False)
"""The best actions are taken."""


@compiled
def explore(slot: Slot, low: int, high: int, mask: Mask, logits: F32, explored: Exploration, count: int) -> int:
    """Return the action of an inference: the best, the drawn, or what takes its place.

    Args:
        slot: as far as it is filled.
        low: the first job of the batch.
        high: the job behind its last.
        mask: which actions are allowed, (3 J + 1,).
        logits: of all actions, (3 J + 1,).
        explored: see there.
        count: number of the inference.
    """
    if len(explored.draws) == 0:
        return choose(logits, mask, -1.0)
    drawn, other = explored.draws[count]
    action, instead = choose(logits, mask, drawn), NOTHING
    if explored.guided:
        instead = guide(slot, low, high, mask, other)
    elif other < explored.epsilon:
        instead = repair(slot, low, high, mask)
    return action if instead == NOTHING else instead


@compiled
def choose(logits: F32, mask: Mask, draw: float) -> int:
    """Return the best action that is allowed, or one that is drawn by the softmax.

    Args:
        logits: of all actions, (3 J + 1,).
        mask: which of them are allowed, (3 J + 1,).
        draw: from 0 to 1: take the action that it hits; negative: take the best.
    """
    best = len(mask) - 1
    for action in range(len(mask)):
        if mask[action] and logits[action] > logits[best]:
            best = action
    if draw < 0:
        return best
    total = 0.0
    for action in range(len(mask)):
        if mask[action]:
            total += np.exp(np.float64(logits[action] - logits[best]))
    left = draw * total
    for action in range(len(mask)):
        if mask[action]:
            left -= np.exp(np.float64(logits[action] - logits[best]))
            if left < 0:
                return action
    return best


@compiled
def repair(slot: Slot, low: int, high: int, mask: Mask) -> int:
    """Return the action that mends the first job in a poor state (section 4.3), if it is allowed; else NOTHING.

    Poor is a job with workers and no server, servers and no worker, or over 10 times more of one than of the other.

    Args:
        slot: as far as it is filled.
        low: the first job of the batch.
        high: the job behind its last.
        mask: which actions are allowed, (3 J + 1,).
    """
    for job in range(low, high):
        workers, servers = slot.counts[job]
        at = (job - low) * ACTIONS
        if workers > UNEVEN * servers and mask[at + SERVER]:
            return at + SERVER
        if servers > UNEVEN * workers and mask[at + WORKER]:
            return at + WORKER
    return NOTHING


@compiled
def guide(slot: Slot, low: int, high: int, mask: Mask, draw: float) -> int:
    """Return what a rule of the published code does in place of the drawn action, or NOTHING where it has no say.

    By arrival, with probability 1/2 each: a job with at most twice as many servers as workers gets one more server (one
    time in 100 one of both); one with over 3 to 7 times more servers gets a worker, or one of both. Where this has
    chosen none, and a job has over 3 to 5 times the tasks of the job with the fewest, the latter gets a worker, or one
    of both. The thresholds are drawn, too.

    Args:
        slot: as far as it is filled.
        low: the first job of the batch.
        high: the job behind its last.
        mask: which actions are allowed, (3 J + 1,).
        draw: from 0 to 1; all coins are its bits.
    """
    uneven, draw = 3 + int(5 * draw), (5 * draw) % 1.0
    for job in range(low, high):
        workers, servers = slot.counts[job]
        at = (job - low) * ACTIONS
        many = servers > uneven * workers
        if not many and 2 * workers < servers:
            continue
        heads, draw = draw < 0.5, (2 * draw) % 1.0
        if heads and mask[at + BOTH] and mask[at + (WORKER if many else SERVER)]:
            if many:
                return at + (WORKER if draw < 0.5 else BOTH)
            return at + (SERVER if draw < 0.99 else BOTH)
    return _balance(slot, low, high, mask, draw)


@compiled
def _balance(slot: Slot, low: int, high: int, mask: Mask, draw: float) -> int:
    """See `guide`: what the job with the fewest tasks gets, or NOTHING."""
    least, fewest, most = low, slot.counts[low].sum(), 0
    for job in range(low, high):
        tasks = slot.counts[job].sum()
        most = max(most, tasks)
        if tasks < fewest:
            least, fewest = job, tasks
    uneven, draw = 3 + int(3 * draw), (3 * draw) % 1.0
    at = (least - low) * ACTIONS
    if fewest > 0 and most // fewest > uneven and mask[at + WORKER] and mask[at + BOTH]:
        return at + (WORKER if draw < 0.5 else BOTH)
    return NOTHING
