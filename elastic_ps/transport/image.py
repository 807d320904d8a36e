"""Memory in which every block of a job's model has its own place, whoever holds it."""

import fcntl
import mmap
import os
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PAGE = mmap.PAGESIZE


class Image:
    """Zeroed memory of which only those pages take room that are touched.

    It is an anonymous file of the kernel's: it may grow while views of it are in use, a process on this host maps it
    by its descriptor, and it is gone with the last process that has it.

    Args:
        nbytes: at the start.

    Attributes:
        array: all of it. After `grow` a longer one; views of the old one show the same memory.
    """

    def __init__(self, nbytes: int = 0):
        self.descriptor = os.memfd_create("elastic_ps", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(self, os.close, self.descriptor)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # who maps it must never meet its end
        self.array: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self.grow(nbytes)

    def grow(self, nbytes: int) -> None:
        """Have at least `nbytes`."""
        if nbytes > self.array.nbytes:
            os.ftruncate(self.descriptor, nbytes)
            self._map = mmap.mmap(self.descriptor, nbytes)
            self.array = np.frombuffer(self._map, dtype=np.uint8)

    def view(self, low: int, high: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The elements [low, high), counted in `dtype`."""
        return self.array[low * dtype.itemsize : high * dtype.itemsize].view(dtype)

    def clear(self, low: int, high: int) -> None:
        """Make the bytes [low, high) zero again; whole pages go back to the system."""
        first, last = -(-low // _PAGE) * _PAGE, high // _PAGE * _PAGE
        if first >= last:
            self.array[low:high] = 0
            return
        self.array[low:first] = 0
        self.array[last:high] = 0
        self._map.madvise(mmap.MADV_REMOVE, first, last - first)
