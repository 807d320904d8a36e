"""This module runs loops over memory, which let go of the interpreter's lock, in threads."""

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.native.daemon_threads import DaemonThreads

_MOST = 4
"""More threads do not make memory faster."""

_COPIED_BYTES = 1 << 20
"""How many bytes are worth a thread's while."""

Copy = tuple[NDArray[Any], NDArray[Any]]
"""A `Copy` is (to, from): arrays of one axis and one length."""


def _threads() -> int:
    return min(_MOST, len(os.sched_getaffinity(0)))


@cache
def _pool() -> DaemonThreads:
    return DaemonThreads(_threads(), "loop")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork has none of its parent's threads


def in_parallel(length: int, unit: int, work: Callable[[int, int], None]) -> None:
    """Call work(low, high) for ranges that together are [0, length), on all cores where there is enough to do.

    Args:
        length: of the whole range.
        unit: what is worth a thread's while; the ranges begin at multiples of it.
        work: does a range. An error of one range is raised when all have ended.
    """
    if length < 2 * unit:
        work(0, length)
        return
    parts = min(_threads(), length // unit)
    step = max(1, -(-length // (parts * unit))) * unit
    ranges = [(low, min(low + step, length)) for low in range(0, length, step)]
    others = [_pool().submit(work, *part) for part in ranges[1:]]
    try:
        work(*ranges[0])
    finally:
        for other in others:
            other.exception()
    for other in others:
        other.result()


def copy_all(copies: Sequence[Copy]) -> None:
    """Copy all, on all cores where they are large; dtypes may differ."""
    ends = list(accumulate(to.nbytes for to, _ in copies))

    def work(low: int, high: int) -> None:
        number = bisect_right(ends, low)
        while low < high:
            to, source = copies[number]
            start = ends[number] - to.nbytes
            first, last = ((at - start) // to.itemsize for at in (low, min(high, ends[number])))
            np.copyto(to[first:last], source[first:last], casting="unsafe")
            low = ends[number]
            number += 1

    in_parallel(ends[-1] if ends else 0, _COPIED_BYTES, work)
