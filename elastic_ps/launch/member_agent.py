"""This module runs one node of a job that runs elsewhere: `elasticrun --role`, a container's entry."""

import math
import queue
import secrets
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from elastic_ps.control.channels import NotTheCoordinator
from elastic_ps.control.token import read_token
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_RESTART, ConfigurationError, CoordinatorLost, NotNow
from elastic_ps.launch import decide
from elastic_ps.launch.commands import JoinSettings, node_environment
from elastic_ps.launch.coordinator_link import CoordinatorLink, pauses
from elastic_ps.launch.processes.child_process import ChildProcess
from elastic_ps.launch.processes.stillness import STILL_SECONDS, Stillness
from elastic_ps.node.leaving import GRACE
from elastic_ps.system.passing_errors import MACHINE_LACKS
from elastic_ps.system.process.signals import SignalCount

_UNDRAINED = 128 + signal.SIGTERM
_LAST_SECONDS = 5.0
_TRY_SECONDS = 1.0
_TELL_SECONDS = 20.0  # more than a lease, after which a coordinator that has lost its journal takes the silent for dead


@dataclass(frozen=True)
class MemberSettings:
    """A `MemberSettings` describes one node to run.

    Attributes:
        role: what it does.
        join: how it finds its job.
        join_timeout: seconds to wait for the job's coordinator.
        grace: seconds after a signal in which it has ended, drained or not.
        nonce_prefix: its processes have the nonces PREFIX.1, PREFIX.2, ...; "": random ones.
    """

    role: Role
    join: JoinSettings
    join_timeout: float = 60.0
    grace: float = 30.0
    nonce_prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Exited:
    status: int


class MemberAgent:
    """A `MemberAgent` runs one node until it has drained, finished or failed.

    Args:
        settings: the node.
        command: argv of the process that has the given nonce.
    """

    def __init__(self, settings: MemberSettings, command: Callable[[str], list[str]]):
        self._settings = settings
        self._command = command
        self._processes = 0
        self._asked = False  # to go
        self._signals = SignalCount()
        self._events: queue.SimpleQueue[_Exited | int] = queue.SimpleQueue()
        self._link = CoordinatorLink(settings.join.coordinator, read_token(settings.join.token_file))

    def signalled(self, number: int) -> None:
        """Drain the node because of a signal; one that comes twice at once is one. Safe in a signal handler."""
        if self._signals.heard():
            self._events.put(number)

    def run(self) -> int:
        """Run the node; return its exit status, 143 if it could not drain in time.

        Raises:
            CoordinatorLost: the job's coordinator does not answer.
            ConfigurationError: the coordinator refuses this launcher, its job has ended, or no process can be started.
            NotNow: the machine has had no process for the node for as long.
        """
        try:
            status = EXIT_RESTART
            while status == EXIT_RESTART:  # the job goes back to its checkpoint: join it again
                status = self._wait_ready() or self._run_once()
            return status
        finally:
            self._link.close()

    def _wait_ready(self) -> int:
        """Return 0 once the coordinator has answered, or an exit status if a signal comes first."""
        timeout = self._settings.join_timeout
        deadline = time.monotonic() + timeout
        for pause in pauses():
            try:
                status = self._link.status(_TRY_SECONDS)
            except CoordinatorLost as error:
                if time.monotonic() + pause > deadline:
                    raise CoordinatorLost(self._unanswered(error)) from error
            else:
                if status.phase in ("finished", "failed"):
                    raise ConfigurationError(f"job {status.job} has {status.phase}: there is nothing to join")
                return 0
            event = self._next(pause)
            if isinstance(event, int):
                return 128 + event
        raise AssertionError("pauses() ends")

    def _unanswered(self, error: CoordinatorLost) -> str:
        """Return why there is no job to join after all the time for it, for people."""
        address, seconds = self._link.address, f"{self._settings.join_timeout:g} s"
        if isinstance(error.__cause__, NotTheCoordinator):  # it was asked for as long, as its own may have come back
            mend = "give --coordinator and --token-file of one job; the file is `token` in its folder"
            return f"{address}: {error}; {mend} (asked for {seconds})"
        return (
            f"no coordinator has answered at {address} for {seconds} ({error}): "
            "is the job running, and can this machine reach it?"
        )

    def _run_once(self) -> int:
        """Run one process, from its start to its end."""
        self._processes += 1
        prefix = self._settings.nonce_prefix
        nonce = f"{prefix}.{self._processes}" if prefix else f"{self._settings.role}-{secrets.token_hex(4)}"
        process = self._start(nonce)
        if isinstance(process, int):
            return process
        try:
            status = self._follow(process, nonce)
        except BaseException:
            process.kill()
            raise
        self._tell(nonce, status)
        return status

    def _start(self, nonce: str) -> ChildProcess | int:
        """Start a process, or return an exit status if a signal comes first: the machine may have none for a while."""
        deadline = time.monotonic() + self._settings.join_timeout
        for tries in count(1):
            try:
                return ChildProcess(
                    nonce,
                    self._command(nonce),
                    {**node_environment(self._settings.join, nonce), GRACE: f"{self._settings.grace:g}"},
                    None,
                    lambda status: self._events.put(_Exited(status)),
                )
            except OSError as error:
                told, seconds = f"the {self._settings.role} could not be started: {error.strerror}", decide.pause(tries)
                if error.errno not in MACHINE_LACKS:
                    raise ConfigurationError(told) from error
                if time.monotonic() + seconds > deadline:
                    mend = "free memory or processes of this machine, and start it again"
                    raise NotNow(f"{told} (tried for {self._settings.join_timeout:g} s); {mend}") from error
            _say(f"{told}; tried again {decide.when(seconds)}")
            event = self._next(seconds)
            if isinstance(event, int):
                return 128 + event
        raise AssertionError("count() ends")

    def _tell(self, nonce: str, status: int) -> None:
        """Report the end. Of one that came by itself repeatedly: the coordinator may be away, and come back."""
        deadline = time.monotonic() + (0.0 if self._asked else _TELL_SECONDS)
        for pause in pauses():
            try:
                self._link.node_exited(nonce, "", status, _TRY_SECONDS)
            except ConfigurationError:
                return
            except CoordinatorLost:  # else it notices by the lease
                if time.monotonic() >= deadline or isinstance(self._next(pause), int):
                    return
            else:
                return

    def _follow(self, process: ChildProcess, nonce: str) -> int:
        """Wait for the end. A signal is passed on as a wish to drain; one more, or most of the grace, ends it."""
        last = min(_LAST_SECONDS, self._settings.grace / 3)
        stages: tuple[tuple[Callable[[], None], float, str], ...] = (
            (process.terminate, self._settings.grace - last, "draining the node; once more ends it"),
            (process.terminate, last, "the node has not drained: ending it"),
            (process.kill, math.inf, "the node does not end: killed"),
        )
        patience = math.inf
        stillness = Stillness(process)
        for asked, (act, next_patience, text) in enumerate(stages):
            event = self._watch(process, nonce, stillness, patience)
            self._asked = asked > 0
            if isinstance(event, _Exited):
                in_order = asked == 0 or (asked == 1 and event.status != EXIT_RESTART)
                return event.status if in_order else _UNDRAINED
            _say(text)
            act()
            patience = next_patience
        while not isinstance(self._next(math.inf), _Exited):
            pass
        return _UNDRAINED

    def _watch(self, process: ChildProcess, nonce: str, stillness: Stillness, patience: float) -> _Exited | int | None:
        """Do what `_next` does, and kill the process if it has been stopped for long and the job does not have it."""
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            event = self._next(min(left, max(0.0, stillness.look_at - time.monotonic())))
            if event is not None:
                return event
            if stillness.look() and self._is_out(nonce):
                _say(f"the node has been stopped for {STILL_SECONDS:.0f} s, and its job does not have it: killed")
                process.kill()
        return None

    def _is_out(self, nonce: str) -> bool:
        """Return whether the job does not have a process: it has not joined yet, or the job goes on without it."""
        try:
            status = self._link.status(_TRY_SECONDS)
        except (CoordinatorLost, ConfigurationError):
            return False
        return status.phase != "rebuilding" and all(node.nonce != nonce for node in status.nodes)

    def _next(self, patience: float) -> _Exited | int | None:
        """Return the process's end or a signal; None after `patience` seconds."""
        try:
            return self._events.get(timeout=None if patience == math.inf else patience)
        except queue.Empty:
            return None


def _say(text: str) -> None:
    """Tell people. Nobody may read it any more (`| tee` that Ctrl-C has ended, a closed terminal): the node goes on."""
    with suppress(OSError, ValueError):
        print(f"elasticrun: {text}", file=sys.stderr, flush=True)
