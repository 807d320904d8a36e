"""A process keeps the memory that it frees, as the next step needs as much again.

A training step makes gradients, and the next one frees them. glibc gives large blocks back to the kernel at once, which
then has to hand out zeroed pages anew: 250,000 page faults a step for the 553 MB of VGG-16, a third of its time on one
core. How much it gives back depends on how the heap happens to lie, so that a worker which joined could be slower for
ever than those that were there.
"""

import ctypes
import os
from collections.abc import Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of mallopt's parameters, mallopt(3)."""

_KEPT = (1 << 31) - 1
"""Bytes: so much free memory stays; mallopt takes no more."""

_LARGEST = 1 << 30, 1 << 25
"""Bytes of a block that stays; older versions of glibc (2.31) refuse more than the second."""

_CHOICES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Let this process keep the memory that it frees from now on; return whether it will.

    It does not where somebody has chosen otherwise by glibc's own environment variables, or where there is no glibc.

    Args:
        environment: of the process.
    """
    if any(name in environment for name in _CHOICES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not any(mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT))
