"""This module runs the coordinator of a launcher's job: its process, started as often as it takes.

One that has ended is started again on its port, at once, then after pauses that double. It goes on from its journal, or
from what the nodes know where that is gone. One that does not listen in time, or is frozen and does not answer, is
killed first. Training goes on meanwhile. Before the first one has listened nothing trains: what may pass is waited for
then, but not for ever.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from elastic_ps.control.channels import address_of
from elastic_ps.core.errors import EXIT_LATER
from elastic_ps.core.exit_status import signal_of
from elastic_ps.launch.commands import JoinSettings, ProcessCommands, node_environment
from elastic_ps.launch.decide import LONGEST_PAUSE_OF_COORDINATOR, SETTLED_SECONDS, pause
from elastic_ps.launch.job_folder import JobFolder
from elastic_ps.launch.options import JobSettings
from elastic_ps.launch.processes.child_process import ChildProcess
from elastic_ps.launch.processes.output import MergedStream, NodeLog
from elastic_ps.system.process.signals import ENDS_COORDINATOR

NAME = "coordinator"
_SAYS = b"coordinator: "
_READY = re.compile(rb"listening on (\S+):(\d+)\s*")
_READY_SECONDS = 60.0
_FIRST_SECONDS = 600.0
"""For how long a job is tried that has not begun yet: it may hold room in a cluster, and somebody waits for it."""


@dataclass(frozen=True, slots=True)
class CoordinatorReady:
    """The coordinator listens at this address."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class CoordinatorEnd:
    """A `CoordinatorEnd` says how a coordinator's process ended.

    Attributes:
        how: for people.
        counts: whether it counts against `--max-restarts`.
        listened: whether it, or one before it, has listened: the job has begun.
        final: another start would not help.
    """

    how: str
    counts: bool
    listened: bool
    final: bool


class _Log:
    """A `_Log` writes the output of the coordinator to its log, and tells the launcher the address in it."""

    def __init__(self, log: NodeLog, ready: Callable[[CoordinatorReady], None]):
        self._log = log
        self._ready = ready
        self.said = ""  # why it ends, in its own words

    def line(self, line: bytes) -> None:
        if match := _READY.fullmatch(line):
            self._ready(CoordinatorReady(match[1].decode(), int(match[2])))
        elif line.startswith(_SAYS):
            self.said = f": {line.removeprefix(_SAYS).decode(errors='replace').strip()}"
        self._log.line(line)

    def close(self) -> None:
        self._log.close()


class CoordinatorProcess:
    """A `CoordinatorProcess` is the coordinator of one job. The launcher's thread uses it.

    Args:
        settings: of the job.
        folder: of the job.
        commands: give the command line.
        merged: takes every line of output.
        ready: called from another thread when the coordinator listens.
        exited: called from another thread with the exit status.
    """

    def __init__(
        self,
        settings: JobSettings,
        folder: JobFolder,
        commands: ProcessCommands,
        merged: MergedStream,
        ready: Callable[[CoordinatorReady], None],
        exited: Callable[[int], None],
    ):
        self._settings = settings
        self._folder = folder
        self._commands = commands
        self._merged = merged
        self._tell_ready = ready
        self._exited = exited
        self._process: ChildProcess | None = None
        self._log: _Log | None = None
        self._port = 0
        self._terms = 0  # that have listened: nodes may know the job
        self._ready_by = self._start_at = math.inf
        self._since = math.inf  # it listens
        self._ends = 0  # in a row
        self._first_by = math.inf  # it has listened once

    @property
    def runs(self) -> bool:
        """Return whether there is a process of it."""
        return self._process is not None

    @property
    def listens(self) -> bool:
        """Return whether it runs and has said that it listens."""
        return self.runs and self._since < math.inf

    @property
    def _has_listened(self) -> bool:
        return self._port > 0

    @property
    def _is_first_over(self) -> bool:
        return time.monotonic() >= self._first_by

    @property
    def join(self) -> JoinSettings:
        """Return how nodes of this machine find the job."""
        nodes = self._settings.nodes
        address = address_of(nodes.host, self._port)
        return JoinSettings(address, self._folder.token_file, nodes.host, nodes.wire, nodes.mode)

    @property
    def deadline(self) -> float:
        """The monotonic seconds at which `enforce` has something to do next."""
        return min(self._ready_by, self._start_at)

    def begin(self) -> None:
        """Let `enforce` start it for the first time."""
        self._start_at = time.monotonic()
        self._first_by = self._start_at + _FIRST_SECONDS

    def _start(self) -> None:
        """Start it, on the port that it had before. Raises OSError: the system has no process for it now."""
        self._log = _Log(NodeLog(self._folder.logs, NAME, self._merged), self._tell_ready)
        self._ready_by, self._start_at, self._since = time.monotonic() + _READY_SECONDS, math.inf, math.inf
        self._process = ChildProcess(
            NAME,
            self._commands.coordinator(self._folder.path, self._folder.token_file, self._port, 1 + self._terms),
            node_environment(self.join, NAME),
            self._log,
            self._exited,
        )

    def ready(self, event: CoordinatorReady) -> None:
        """Publish that it listens: operators find the job now.

        Raises:
            OSError: the disk fails. One that is started again is where operators look for it all the same.
        """
        again = event.port == self._port
        self._port, self._ready_by, self._since = event.port, math.inf, time.monotonic()
        self._terms += 1
        if self._process is None:
            return
        try:
            self._folder.listening(f"{event.host}:{event.port}", self._process.pid)
        except OSError as error:
            if not again:
                raise
            told = f"job.json still has the last coordinator's process, as it cannot be written: {error.strerror}"
            self._merged.line("elasticrun", told)

    def ended(self, status: int) -> CoordinatorEnd:
        """Take note that its process has ended; return how."""
        settled = time.monotonic() - self._since >= SETTLED_SECONDS
        self._ends = 1 if settled else self._ends + 1
        self._process, self._ready_by, self._since = None, math.inf, math.inf
        said = self._log.said if self._log is not None else ""
        may_pass = status == EXIT_LATER or signal_of(status) > 0
        return CoordinatorEnd(
            f"status {status}{said} (log: {self._folder.logs / NAME}.log)",
            counts=status != EXIT_LATER,
            listened=self._has_listened,
            final=not self._has_listened and (not may_pass or self._is_first_over),
        )

    def start_later(self) -> float:
        """Let `enforce` start it again; return in how many seconds."""
        seconds = pause(self._ends, LONGEST_PAUSE_OF_COORDINATOR)
        self._start_at = time.monotonic() + seconds
        return seconds

    def enforce(self) -> str:
        """Do what is due; return what that was, for people.

        Raises:
            OSError: the system has had no process for the first one for long.
        """
        now = time.monotonic()
        if now >= self._start_at:
            return self._try_start()
        if now >= self._ready_by and self._process is not None:
            self._ready_by = math.inf
            self._process.kill()
            return f"the coordinator is not ready after {_READY_SECONDS:.0f} s: killed"
        return ""

    def _try_start(self) -> str:
        """Start it, or let `enforce` try again; return what keeps it from starting, for people."""
        try:
            self._start()
        except OSError as error:
            if self._log is not None:
                self._log.close()
            if not self._has_listened and self._is_first_over:
                raise
            self._ready_by = math.inf
            self._ends += 1
            return f"the coordinator could not be started: {error.strerror}; tried again in {self.start_later():g} s"
        return ""

    def forget(self) -> None:
        """Start it no more, as the job is over."""
        self._start_at = math.inf

    def terminate(self) -> None:
        """Let its process end in order."""
        if self._process is not None:
            self._process.terminate(ENDS_COORDINATOR)

    def kill(self) -> None:
        """Send SIGKILL to its process."""
        if self._process is not None:
            self._process.kill()
