"""Memory of blocks that arrive together, and go one by one."""

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DType = np.dtype[Any]


class Memory:
    """Zeroed memory that is given back to the system by ranges."""

    def __init__(self, elements: int, dtype: DType):
        self._map = mmap.mmap(-1, max(elements * dtype.itemsize, 1))
        self.array: Array = np.frombuffer(self._map, dtype=dtype, count=elements)

    def discard(self, low: int, high: int) -> None:
        """The elements [low, high) are not needed any more."""
        item = self.array.itemsize
        start = -(-low * item // mmap.PAGESIZE) * mmap.PAGESIZE
        length = high * item // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0:
            self._map.madvise(mmap.MADV_DONTNEED, start, length)


class Arena:
    """The memory of blocks that arrived together."""

    def __init__(self, nbytes: int):
        self.values = Memory(nbytes, np.dtype(np.uint8))
        self.states: dict[int, dict[str, Memory]] = {}  # by state layout
        self.held = 0
