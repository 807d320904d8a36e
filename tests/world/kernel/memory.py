"""Memory of processes that share none: their images lie in plain memory, which costs no calls of the kernel.

Images that a world's processes have in common are the kernel's, as in production.
"""

import fcntl
import mmap
import os
from ctypes import Array, c_uint8
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import Any

_ROOM = 1 << 16
"""Bytes that an image may come to: models of the world are small."""


class Memory:
    """A `Memory` stands for the modules by which `elastic_ps.transport.shared_memory` asks the kernel for images."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._sizes: dict[int, int] = {}
        self._rooms: dict[int, bytearray] = {}
        self.os = SimpleNamespace(
            memfd_create=self._create,
            close=self._close,
            ftruncate=self._sizes.__setitem__,
            fstat=lambda number: SimpleNamespace(st_size=self._sizes[number]),
            **{name: getattr(os, name) for name in ("MFD_CLOEXEC", "MFD_ALLOW_SEALING")},
        )
        self.fcntl = SimpleNamespace(**{**vars(fcntl), "fcntl": lambda *_asked: 0})
        self.mmap = SimpleNamespace(**{**vars(mmap), "mmap": self._map})

    def _create(self, _name: str, _flags: int) -> int:
        number = next(self._numbers)
        self._sizes[number] = 0
        return number

    def _close(self, number: int) -> None:
        del self._sizes[number]
        self._rooms.pop(number, None)

    def _map(self, number: int, nbytes: int, prot: int) -> Any:
        assert nbytes <= _ROOM, f"an image of {nbytes} bytes"
        if number not in self._rooms:
            self._rooms[number] = bytearray(_ROOM)
        return _of_size(nbytes).from_buffer(self._rooms[number])


@cache
def _of_size(nbytes: int) -> type[Array[c_uint8]]:
    """Return the class of maps of so many bytes."""
    return type("Map", (c_uint8 * nbytes,), {"madvise": _advise})


def _advise(memory: Any, advice: int, start: int, length: int) -> None:
    if advice == mmap.MADV_REMOVE:
        memory[start : start + length] = bytes(length)
