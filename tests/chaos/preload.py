"""Disks that fail and clocks that jump, by what a library tells a job's processes (`preload.c`).

The kernel has one clock of the day for all, and a disk that fails for a while is hard to come by. So what stands
between a program and the kernel says what these would say: EIO, and another time.
"""

import mmap
import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_PROCESSES = 1 << 16
_LAYOUT = struct.Struct("=q")
_FOLDERS = 2  # whether writing to each fails, then how often it has, then the clocks
_SECONDS = 60.0


class Preload:
    """A `Preload` says what a job's processes meet, while they run.

    Args:
        folder: for the library and its table.
        disks: two folders, as the kernel names them, below which writing may fail.
    """

    def __init__(self, folder: Path, disks: Sequence[Path]):
        assert len(disks) == _FOLDERS
        self._disks = list(disks)
        self._library, table = folder / "preload.so", folder / "preload.table"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True, timeout=_SECONDS)
        size = (2 * _FOLDERS + _PROCESSES) * _LAYOUT.size
        with table.open("w+b") as file:
            os.truncate(file.fileno(), size)
            self._table = mmap.mmap(file.fileno(), size)
        self._environment = {"LD_PRELOAD": self._library, "CHAOS_TABLE": table}
        self._environment |= {f"CHAOS_FOLDER_{number}": path for number, path in enumerate(disks)}

    @property
    def wrap(self) -> tuple[str, ...]:
        """The command that a program's own follows, for it and all that it starts."""
        return ("env", *(f"{name}={value}" for name, value in self._environment.items()))

    def fail(self, disk: Path, wanted: bool = True) -> None:
        """Let writing below a folder fail from now on, or no more."""
        self._put(self._disks.index(disk), int(wanted))

    def failed(self, disk: Path) -> int:
        """How often writing there has failed."""
        return self._get(_FOLDERS + self._disks.index(disk))

    def jump(self, pid: int, seconds: int) -> None:
        """Set a process's clock of the day to another time.

        Args:
            pid: of it.
            seconds: that it is ahead from now on.
        """
        self._put(2 * _FOLDERS + pid % _PROCESSES, seconds)

    def _put(self, at: int, value: int) -> None:
        _LAYOUT.pack_into(self._table, at * _LAYOUT.size, value)

    def _get(self, at: int) -> int:
        return int(_LAYOUT.unpack_from(self._table, at * _LAYOUT.size)[0])
