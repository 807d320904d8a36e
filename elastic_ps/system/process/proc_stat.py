"""This module reads what Linux tells of a process."""

from functools import cache
from pathlib import Path

_STATE, _START = 0, 19  # of the fields behind the name, which proc(5) counts from 3 on
_ENDED = ("Z", "X")


def stat_fields(pid: int | str) -> list[str]:
    """Return the fields behind a process's name in /proc/PID/stat. The first is its state, 3 in proc(5).

    The name may hold anything: spaces, brackets, half a character.

    Raises:
        OSError: there is no such process, it is hidden, or the system is not Linux.
    """
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def birth_of(pid: int) -> str | None:
    """Return what tells a running process from all others of its number, ever; None: there is none that is shown.

    It is the machine's boot and the process's start in it; a system that is not Linux shows none.
    """
    try:
        fields = stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # with hidepid=1 another user's is not shown
        return None
    return None if fields[_STATE] in _ENDED else f"{boot_id()}:{fields[_START]}"


def is_of_this_boot(birth: str) -> bool:
    """Return whether a process that `birth_of` told of began on this machine, and since its last start."""
    try:
        return birth.partition(":")[0] == boot_id()
    except OSError:  # it is not Linux, where nothing has a birth
        return False


@cache
def boot_id() -> str:
    """Return what no other machine has, nor this one after its next start. Raises OSError: it is not Linux."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
