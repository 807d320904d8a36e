"""This module reads what Linux tells of a process."""

from pathlib import Path


def stat_fields(pid: int | str) -> list[str]:
    """Return the fields behind a process's name in /proc/PID/stat. The first is its state, 3 in proc(5).

    The name may hold anything: spaces, brackets, half a character.

    Raises:
        OSError: there is no such process, it is hidden, or the system is not Linux.
    """
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
