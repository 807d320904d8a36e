"""This module works on many pieces of memory at once, without a Python object for each."""

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.native.library import address, library
from elastic_ps.native.threads import in_parallel

Addresses = NDArray[np.int64]

_MOVED_BYTES = 1 << 20
"""How many bytes are worth a thread's while."""


def move(to: Addresses, source: Addresses, nbytes: Addresses) -> None:
    """Copy each piece's bytes from its source, on all cores where they are many.

    Args:
        to: the address of each piece; int64, of shape (pieces,).
        source: the address that it is copied from. No piece overlaps another or its source.
        nbytes: of each piece.
    """
    ends = np.cumsum(nbytes)
    compiled = library()
    if compiled is None:
        for piece in zip(to.tolist(), source.tolist(), nbytes.tolist(), strict=True):
            ctypes.memmove(*piece)
        return
    places = [ctypes.c_void_p(address(np.ascontiguousarray(array))) for array in (to, source, ends)]

    def work(low: int, high: int) -> None:
        piece = bisect_right(ends, low)
        compiled.move_bytes(*places, ctypes.c_int64(piece), ctypes.c_int64(low), ctypes.c_int64(high))

    in_parallel(int(ends[-1]) if len(ends) else 0, _MOVED_BYTES, work)


def find_all(find: Any, handles: Sequence[int]) -> tuple[int, Addresses]:
    """Find where each of a framework's arrays lies.

    Args:
        find: the framework's C function int(handle, void **found).
        handles: of the arrays.

    Returns:
        The status of the first call that is not 0, else 0; the addresses.
    """
    arrays, found = np.array(handles, dtype=np.int64), np.zeros(len(handles), dtype=np.int64)
    compiled = library()
    if compiled is not None:
        to = [ctypes.c_void_p(address(array)) for array in (arrays, found)]
        return int(compiled.find_all(ctypes.cast(find, ctypes.c_void_p), ctypes.c_int64(len(arrays)), *to)), found
    for number, handle in enumerate(handles):
        place = ctypes.c_void_p()
        if status := find(ctypes.c_void_p(handle), ctypes.byref(place)):
            return int(status), found
        found[number] = place.value or 0
    return 0, found
