"""A room of its own for each job: namespaces of processes and of the network, which end with their first process."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from elastic_ps.launch.processes import child_process as processes

_GUARD = Path(processes.__file__).with_name("guard.py")
_UNSHARE = ("unshare", "--net", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")


def guarded(command: Sequence[str]) -> list[str]:
    """Return a command that dies with this process, however this one dies."""
    return [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *command]


def inside(command: Sequence[str], network: bool) -> list[str]:
    """Return a command that runs in a room of its own and dies with this process; all that it starts dies with it.

    Args:
        command: argv.
        network: with a network of its own; False where no namespaces can be had: then nothing is shut in.
    """
    if not network:
        return guarded(command)
    return guarded([*_UNSHARE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command])
