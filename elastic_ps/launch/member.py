"""One node of a job that runs elsewhere: `elasticrun --role`, a container's entry."""

import contextlib
import queue
import secrets
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_RESTART, ConfigurationError, CoordinatorLost
from elastic_ps.launch.commands import Place, node_environment
from elastic_ps.launch.link import CoordinatorLink
from elastic_ps.launch.processes import Process
from elastic_ps.node.settings import read_token

_UNDRAINED = 128 + signal.SIGTERM


@dataclass(frozen=True)
class MemberSettings:
    """One node to run.

    Attributes:
        role: what it does.
        place: where its job is.
        join_timeout: seconds to wait for the job's coordinator.
        grace: seconds that a drain may take.
    """

    role: Role
    place: Place
    join_timeout: float = 60.0
    grace: float = 30.0


@dataclass(frozen=True, slots=True)
class _Exited:
    status: int


class MemberAgent:
    """Runs one node until it has drained, finished or failed.

    Args:
        settings: the node.
        command: argv of the process that has the given nonce.
    """

    def __init__(self, settings: MemberSettings, command: Callable[[str], list[str]]):
        self._settings = settings
        self._command = command
        self._events: queue.SimpleQueue[_Exited | int] = queue.SimpleQueue()
        self._link = CoordinatorLink(settings.place.coordinator, read_token(settings.place.token_file))

    def signalled(self, number: int) -> None:
        """A signal asks to drain the node. Safe in a signal handler."""
        self._events.put(number)

    def run(self) -> int:
        """Run the node; returns its exit status, 143 if it could not drain in time.

        Raises:
            CoordinatorLost: the job's coordinator does not answer.
            ConfigurationError: the coordinator refuses this launcher.
        """
        try:
            while True:
                self._link.wait_ready(self._settings.join_timeout)
                status = self._run_once()
                if status != EXIT_RESTART:  # the job goes back to its checkpoint: join it again
                    return status
        finally:
            self._link.close()

    def _run_once(self) -> int:
        """One process, from its start to its end."""
        nonce = f"{self._settings.role}-{secrets.token_hex(4)}"
        process = Process(
            nonce,
            self._command(nonce),
            node_environment(self._settings.place, nonce),
            None,
            lambda status: self._events.put(_Exited(status)),
        )
        try:
            status = self._follow(process)
        except BaseException:
            process.kill()
            raise
        with contextlib.suppress(CoordinatorLost, ConfigurationError):  # it notices by the lease, too
            self._link.node_exited(nonce, "", status)
        return status

    def _follow(self, process: Process) -> int:
        """Pass signals on and wait for the end: SIGTERM, after the grace another, after a last second SIGKILL."""
        escalation = iter(((process.terminate, self._settings.grace), (process.terminate, 1.0), (process.kill, None)))
        deadline: float | None = None
        drained = True
        while True:
            try:
                event = self._events.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                _say(f"not drained after {self._settings.grace:g} s: ending it")
                drained = False
            else:
                if isinstance(event, _Exited):
                    return event.status if drained else _UNDRAINED
                if deadline is None:
                    _say(f"{signal.Signals(event).name}: draining the node; once more ends it")
                else:
                    drained = False
            act, patience = next(escalation)
            act()
            deadline = None if patience is None else time.monotonic() + patience


def _say(text: str) -> None:
    print(f"elasticrun: {text}", file=sys.stderr, flush=True)
