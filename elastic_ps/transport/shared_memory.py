"""This module has memory in which every block of a job's model has its own place, whoever holds it."""

import fcntl
import mmap
import os
import threading
import weakref
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PAGE = mmap.PAGESIZE
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # madvise's, from Linux 5.14 on


class Image:
    """An `Image` is zeroed memory of which only those pages take room that are touched.

    It is an anonymous file of the kernel's: it may grow while views of it are in use, another process on this host maps
    it by a descriptor, and it is gone with the last process that has it.

    Args:
        nbytes: at the start.

    Attributes:
        array: all of it. After `grow` a longer one; views of the old one show the same memory.
    """

    def __init__(self, nbytes: int = 0):
        descriptor = os.memfd_create("elastic_ps", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # who maps it must never meet its end
        self._set(descriptor, mmap.PROT_READ | mmap.PROT_WRITE)
        self.grow(nbytes)

    def _set(self, descriptor: int, protection: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self._protection = protection
        self._following = threading.Lock()
        self.array: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    @classmethod
    def attached(cls, descriptor: int, writable: bool) -> "Image":
        """Map another process's image, by a descriptor that belongs to this one from now on."""
        image = cls.__new__(cls)
        image._set(descriptor, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
        image.follow()
        return image

    def read_only(self) -> int:
        """Open a new descriptor, by which the image can be mapped and not be written to."""
        return os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)

    def grow(self, nbytes: int) -> None:
        """Make it at least `nbytes` long."""
        if nbytes > self.array.nbytes:
            os.ftruncate(self.descriptor, nbytes)
            self.follow()

    def follow(self) -> None:
        """Map all that there is now: who made it may have let it grow. Safe from several threads.

        What was mapped before is gone with its last view: who takes addresses keeps the array that they are of.
        """
        with self._following:  # else each would map it, and the later take the memory of the earlier away
            nbytes = os.fstat(self.descriptor).st_size
            if nbytes > self.array.nbytes:
                self._map = mmap.mmap(self.descriptor, nbytes, prot=self._protection)
                self.array = np.frombuffer(self._map, dtype=np.uint8)

    def view(self, low: int, high: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the elements [low, high), counted in `dtype`, on one axis.

        Args:
            low: first element.
            high: after the last one.
            dtype: of the elements.
        """
        return self.array[low * dtype.itemsize : high * dtype.itemsize].view(dtype)

    def populate(self, low: int, high: int) -> None:
        """Touch the pages of the bytes [low, high) before somebody waits for them; what they hold stays."""
        first = low // _PAGE * _PAGE
        how = _POPULATE_WRITE if self._protection & mmap.PROT_WRITE else _POPULATE_READ
        with suppress(OSError):  # an older kernel: they come when they are touched
            self._map.madvise(how, first, high - first)

    def clear(self, low: int, high: int) -> None:
        """Make the bytes [low, high) zero again; whole pages go back to the system."""
        first, last = -(-low // _PAGE) * _PAGE, high // _PAGE * _PAGE
        if first >= last:
            self.array[low:high] = 0
            return
        self.array[low:first] = 0
        self.array[last:high] = 0
        self._map.madvise(mmap.MADV_REMOVE, first, last - first)
