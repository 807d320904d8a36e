"""This module starts, signals, reads and reaps child processes of a launcher. None of them outlives it."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from elastic_ps.launch.processes.output import pass_on
from elastic_ps.system.process.proc_stat import stat_fields

_GUARD = Path(__file__).with_name("guard.py")
_LONGEST_PIECE = 64 << 10
_DRAIN_SECONDS = 5.0
"""How long to wait for the end of the output after a process and its whole group have ended; a daemon that it has
left behind in another group may keep the pipe open, and who reads the launcher's own output may stand still."""


class Sink(Protocol):
    """A `Sink` takes a process's output."""

    def line(self, line: bytes) -> None:
        """Take one line with its newline, or a piece of a very long one."""

    def close(self) -> None:
        """Take note that there is no more."""


class ChildProcess:
    """A `ChildProcess` is one child with its own process group.

    Start it from a thread that lives as long as the launcher does: the child dies with that thread (`guard`). One that
    has become another user's (`--wrap-worker sudo ...`) takes no signal of the launcher's, and its end is told all the
    same.

    Args:
        name: for thread names.
        command: argv.
        environment: of the child, complete.
        sink: takes standard output and standard error, line by line; None: they are passed on to the launcher's own,
            for as long as somebody reads that.
        exited: called once, from a thread of this object, with the exit status, after the last line of output has
            been taken. A child that was killed by signal n has status 128 + n, as in a shell.

    Raises:
        OSError: the system has no process for it now.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        sink: Sink | None,
        exited: Callable[[int], None],
    ):
        self._exited = exited
        self._sink = sink
        self._reaped = threading.Lock()
        self._gone = False
        apart = sink is None and not _is_one_stream()
        self._child = subprocess.Popen(  # ended and waited for by _reap
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
            process_group=0,  # a terminal's Ctrl-C is for the launcher, which ends its children in order
        )
        pipes = [pipe for pipe in (self._child.stdout, self._child.stderr) if pipe is not None]
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, number), name=f"output-{number}-{name}", daemon=True)
            for number, pipe in enumerate(pipes, start=1)
        ]
        try:
            for reader in self._readers:
                reader.start()
            threading.Thread(target=self._reap, name=f"reap-{name}", daemon=True).start()
        except RuntimeError as error:  # the system gives no thread, as it may give no process
            os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()
            for pipe, reader in zip(pipes, self._readers, strict=True):
                if not reader.is_alive():
                    pipe.close()
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def pid(self) -> int:
        """The process id of the child, which leads its process group."""
        return self._child.pid

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the process itself: a node takes SIGTERM as a wish to be drained."""
        with self._reaped, suppress(PermissionError):
            if not self._gone:
                os.kill(self.pid, number)

    @property
    def is_stopped(self) -> bool:
        """Return whether it stands still by SIGSTOP, and takes no signal but SIGKILL (Linux; elsewhere: False)."""
        with self._reaped:
            try:
                state = stat_fields(self.pid)[0]
            except (OSError, IndexError):
                return False
            return not self._gone and state in "Tt"

    def kill(self) -> None:
        """Send SIGKILL to the process and everything that it has started."""
        with self._reaped, suppress(PermissionError):
            if not self._gone:
                os.killpg(self.pid, signal.SIGKILL)

    def _read(self, pipe: BufferedReader, descriptor: int) -> None:
        if self._sink is None:
            pass_on(pipe, descriptor)
            return
        with pipe, closing(self._sink) as sink:
            while piece := pipe.readline(_LONGEST_PIECE):
                sink.line(piece)

    def _reap(self) -> None:
        """Wait for the end, end what the process has left behind, and tell the owner."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._reaped:  # until the child is reaped, its number and its group's cannot be anybody else's
            with suppress(PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            status = self._child.wait()
            self._gone = True
        until = time.monotonic() + _DRAIN_SECONDS
        for reader in self._readers:
            reader.join(max(0.0, until - time.monotonic()))
        self._exited(status if status >= 0 else 128 - status)


def _is_one_stream() -> bool:
    """Return whether standard output and standard error lead to one place, so that their order counts."""
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:  # one of them is closed
        return False
