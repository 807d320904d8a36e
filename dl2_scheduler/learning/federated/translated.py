"""This module makes of another cluster's network one that knows this cluster's types."""

from collections.abc import Sequence

import numpy as np

from dl2_scheduler.learning.federated.knowledge import type_digest
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.weights import Weights

_BY_TYPE = ("base.weight", "rank.weight")  # the arrays whose columns begin with the types


def to_digests(weights: Weights) -> Weights:
    """Return the same network, whose types are named by digests."""
    return Weights(tuple(map(type_digest, weights.models)), weights.arrays)


def translated(weights: Weights, models: Sequence[str]) -> Weights:
    """Return a network that decides about one's own types as the other does; about others as about its mean type.

    Args:
        weights: with types named by digests.
        models: names of one's own types.
    """
    count, place = len(weights.models), {digest: number for number, digest in enumerate(weights.models)}

    def of_own(array: F32) -> F32:
        mean = array[:, :count].mean(axis=1)
        columns = [array[:, place[digest]] if digest in place else mean for digest in map(type_digest, models)]
        return np.ascontiguousarray(np.column_stack([*columns, array[:, count:]]))

    arrays = {name: of_own(array) if name in _BY_TYPE else array for name, array in weights.arrays.items()}
    return Weights(tuple(models), arrays)
