"""The network of Chic, compiled: from what it sees to an action, without a framework."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

BEST, SAMPLED, UNIFORM = 0, 1, 2
"""How actions are chosen: the best one, by the network's probabilities, or all as likely."""


class Network(NamedTuple):
    """A `Network` has the weights of the layers, (inputs, outputs), and their biases."""

    weight1: Floats
    bias1: Floats
    weight2: Floats
    bias2: Floats
    weight3: Floats
    bias3: Floats
    weight4: Floats
    bias4: Floats


@compiled
def write_scores(network: Network, state: Floats, scores: Floats) -> None:
    """Write the network's score of each action, before softmax.

    Args:
        network: of three hidden layers.
        state: (inputs,).
        scores: written, (actions,).
    """
    first = np.maximum(state @ network.weight1 + network.bias1, 0.0)
    second = np.maximum(first @ network.weight2 + network.bias2, 0.0)
    third = np.maximum(second @ network.weight3 + network.bias3, 0.0)
    scores[:] = third @ network.weight4 + network.bias4


@compiled
def best_of(scores: Floats, allowed: Mask) -> int:
    """Return the allowed action of the highest score."""
    best = -1
    for action in range(len(scores)):
        if allowed[action] and (best < 0 or scores[action] > scores[best]):
            best = action
    return best


@compiled
def drawn(scores: Floats, allowed: Mask, uniform: float) -> int:
    """Return an allowed action, each with its softmax probability.

    Args:
        scores: of the actions; of equal ones all are as likely.
        allowed: of them.
        uniform: a number drawn evenly from [0, 1).
    """
    top = -np.inf
    for action in range(len(scores)):
        if allowed[action]:
            top = max(top, scores[action])
    total = 0.0
    for action in range(len(scores)):
        if allowed[action]:
            total += np.exp(scores[action] - top)
    rest, last = uniform * total, -1
    for action in range(len(scores)):
        if allowed[action]:
            last = action
            rest -= np.exp(scores[action] - top)
            if rest < 0:
                break
    return last


@compiled
def chosen(scores: Floats, allowed: Mask, how: int, random: np.random.Generator) -> int:
    """Return an allowed action.

    Args:
        scores: of the actions.
        allowed: of them.
        how: BEST, SAMPLED or UNIFORM.
        random: of the draws.
    """
    if how == BEST:
        return best_of(scores, allowed)
    return drawn(np.zeros_like(scores) if how == UNIFORM else scores, allowed, random.random())
