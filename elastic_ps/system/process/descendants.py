"""A program takes along what it has started, however it ends: by its end, Ctrl-C, SIGTERM or SIGKILL.

`descendants_end_with_me` puts a token of its own into this process's environment, which every descendant inherits, also
one in a session of its own or whose parents have ended, and starts a guard: this file, run by its path. When the
process is gone the guard kills whatever has the token, until nothing has. Linux only; elsewhere nothing is done.

For programs that start jobs to measure or to show them. A launcher of jobs that are to outlive it must not use it.
"""

import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import NoReturn

TOKENS = "ELASTIC_ENDS_WITH"
"""This environment variable has the tokens of the programs that a process ends with, separated by spaces."""

_TERMINATED = 128 + signal.SIGTERM
_PATIENCE_SECONDS = 30.0
"""How long the guard goes on where the kernel does not end what it kills."""

_PAUSE_SECONDS = 0.05


def descendants_end_with_me() -> None:
    """Let everything that this process starts from now on end with it, however that ends. For the main thread.

    SIGTERM becomes a `SystemExit`, so that `with` blocks end their jobs in order; what is left then is killed.
    """
    if sys.platform != "linux":
        return
    token = uuid.uuid4().hex
    inherited = os.environ.get(TOKENS, "")
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), token]
    null = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1, 2)]
    os.posix_spawn(sys.executable, command, dict(os.environ), file_actions=null, setsid=True)
    os.environ[TOKENS] = f"{inherited} {token}".strip()
    signal.signal(signal.SIGTERM, _exit)


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_TERMINATED)


def holders(token: str) -> Iterator[int]:
    """Yield the processes that began with a token in their environment and have not ended."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and _has(int(name), token))


def _has(pid: int, token: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False
    return any(value.startswith(f"{TOKENS}=".encode()) and token.encode() in value for value in variables)


def _kill(token: str) -> bool:
    """Send SIGKILL to all that have the token; return whether there were any."""
    found = list(holders(token))
    for pid in found:
        with suppress(OSError):  # it has ended meanwhile
            descriptor = os.pidfd_open(pid)
            try:
                if _has(pid, token):  # and it is no other that has its number now
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)
    return bool(found)


def _guard(pid: int, token: str) -> None:
    """Wait until process `pid`, which has started this one, has ended; then kill all that have the token."""
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        if os.getppid() == pid:  # else it had ended before, and the number may be another's
            select.select([descriptor], [], [])
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _kill(token) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2])
