"""This module cuts runs of blocks where something changes, and puts them together again."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.model import Run

Array = NDArray[Any]
Raw = NDArray[np.uint8]


def stretches(*arrays: Array) -> Iterator[tuple[int, int]]:
    """Yield [low, high) of the longest stretches of the last axis over which each of `arrays` stays the same."""
    length = arrays[0].shape[-1]
    if length == 1:
        yield 0, 1
        return
    cut = np.zeros(max(length - 1, 0), dtype=bool)
    for array in arrays:
        differs = array[..., 1:] != array[..., :-1]
        cut |= differs if differs.ndim == 1 else differs.any(axis=0)
    yield from pairwise([0, *(np.flatnonzero(cut) + 1).tolist(), length])


def runs_of(wanted: NDArray[np.bool_]) -> list[Run]:
    """Return the runs of the blocks, by id, that are wanted."""
    framed = np.zeros(len(wanted) + 2, dtype=bool)
    framed[1:-1] = wanted
    edges = (framed[1:] != framed[:-1]).nonzero()[0].tolist()
    return [(low, high - low) for low, high in zip(edges[::2], edges[1::2], strict=True)]


def grown(array: Array, size: int) -> Array:
    """Return an array with zeros behind it, `size` long; the array itself where it is."""
    return array if len(array) == size else np.pad(array, (0, size - len(array)))


def scatter(data: Raw, parts: Iterable[Array]) -> None:
    """Write bytes to the memory of contiguous arrays, one behind the other."""
    start = 0
    for part in parts:
        part.view(np.uint8)[...] = data[start : start + part.nbytes]
        start += part.nbytes


def joined(parts: Iterable[Run]) -> list[Run]:
    """Return disjoint runs in ascending order, neighbours put together."""
    result: list[Run] = []
    for first, count in sorted(parts):
        if result and sum(result[-1]) == first:
            result[-1] = (result[-1][0], result[-1][1] + count)
        else:
            result.append((first, count))
    return result
