"""This module says where the output of jobs' nodes lies, and what a launcher has said last."""

import os
from pathlib import Path

_LAST_BYTES = 1 << 16


def node_log(folder: Path, job: str, node: str) -> Path:
    """Return the file of one node's output, of a job's last start.

    Args:
        folder: the folder of the cluster's state.
        job: the job's name.
        node: by its id, as in w0.
    """
    return folder / "elastic_ps" / "jobs" / job / "logs" / f"{node}.log"


def last_line(log: Path) -> tuple[str, float]:
    """Return the last line of a launcher's output, and when it came, in unix seconds; "" and 0: nobody can tell.

    Only the end is read: people delete the folder of a job that has printed for weeks, and then this is all there is.
    """
    try:
        with log.open("rb") as file:
            found = os.fstat(file.fileno())
            file.seek(max(0, found.st_size - _LAST_BYTES))
            lines = file.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
    except OSError:
        return "", 0.0
    return lines[-1] if lines else "", found.st_mtime
