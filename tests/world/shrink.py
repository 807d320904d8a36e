"""Fewer faults that still make a job fail: what is left is what matters."""

from collections.abc import Callable

from tests.world.faults.job_draw import JobDraw


def shrunk(draw: JobDraw, fails: Callable[[JobDraw], bool]) -> JobDraw:
    """Return a draw that fails with as few faults as bisecting finds.

    Args:
        draw: that fails.
        fails: runs a draw.
    """
    size = max(1, len(draw.faults) // 2)
    while draw.faults:
        smaller = _without_some(draw, size, fails)
        if smaller is not None:
            draw, size = smaller, min(size, max(1, len(smaller.faults) // 2))
        elif size == 1:
            break
        else:
            size //= 2
    return draw


def _without_some(draw: JobDraw, size: int, fails: Callable[[JobDraw], bool]) -> JobDraw | None:
    """Return the draw without the first `size` faults in a row that it can do without; None: there are none."""
    for start in range(0, len(draw.faults), size):
        smaller = draw.without(frozenset(fault.number for fault in draw.faults[start : start + size]))
        if fails(smaller):
            return smaller
    return None
