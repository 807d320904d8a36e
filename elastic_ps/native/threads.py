"""Threads for loops over memory that let go of the interpreter's lock."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

_MOST = 4
"""More threads do not make memory faster."""


def _threads() -> int:
    return min(_MOST, len(os.sched_getaffinity(0)))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads(), "loop")


def in_parallel(length: int, unit: int, work: Callable[[int, int], None]) -> None:
    """Call work(low, high) for ranges that together are [0, length), on all cores where there are several `unit`s.

    The ranges begin at multiples of `unit`. An error of one of them is raised when all have ended.
    """
    parts = max(1, min(_threads(), length // unit))
    step = max(1, -(-length // (parts * unit))) * unit
    ranges = [(low, min(low + step, length)) for low in range(0, max(length, 1), step)]
    others = [_pool().submit(work, *part) for part in ranges[1:]]
    try:
        work(*ranges[0])
    finally:
        for other in others:
            other.exception()
    for other in others:
        other.result()
