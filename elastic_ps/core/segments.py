"""This module cuts runs of blocks where something changes, and puts them together again."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.model import Run

Array = NDArray[Any]
Raw = NDArray[np.uint8]


def has_any(mask: Array) -> bool:
    """Return whether something in an array is not zero: of a few blocks numpy's own `any` takes five times as long."""
    return np.count_nonzero(mask) > 0


def stretches(*arrays: Array) -> Iterator[tuple[int, int]]:
    """Yield [low, high) of the longest stretches of the last axis over which each of `arrays` stays the same."""
    length = arrays[0].shape[-1]
    cut: NDArray[np.bool_] | None = None
    for array in arrays if length > 1 else ():
        differs = array[..., 1:] != array[..., :-1]
        if has_any(differs):
            changes = differs if differs.ndim == 1 else differs.any(axis=0)
            cut = changes if cut is None else cut | changes
    if cut is None:
        yield 0, length
    else:
        yield from pairwise([0, *(cut.nonzero()[0] + 1).tolist(), length])


def runs_of(wanted: NDArray[np.bool_]) -> list[Run]:
    """Return the runs of the blocks, by id, that are wanted."""
    count = int(np.count_nonzero(wanted))  # numpy 2 gives a number of its own, which no frame can say
    if count in (0, len(wanted)):
        return [(0, count)] if count else []
    framed = np.zeros(len(wanted) + 2, dtype=bool)
    framed[1:-1] = wanted
    edges = (framed[1:] != framed[:-1]).nonzero()[0].tolist()
    return [(low, high - low) for low, high in zip(edges[::2], edges[1::2], strict=True)]


def mask_of(runs: Iterable[Run]) -> NDArray[np.bool_]:
    """Return which blocks are in some runs, by id, up to the last of them; the runs may overlap."""
    known = list(runs)
    mask = np.zeros(max((sum(run) for run in known), default=0), dtype=bool)
    for first, count in known:
        mask[first : first + count] = True
    return mask


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
