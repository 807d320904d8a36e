"""Processes that no coordinator answers before they have joined give up, and their launcher starts others."""

from collections.abc import Mapping
from typing import Any

from elastic_ps.core.errors import CoordinatorLost
from tests.world.faults.cells import COORDINATOR, SERVER, WORKER
from tests.world.kernel.scheduler import DEAD, RUNS, Process

_PATIENCE = 60.0
"""Seconds that a process waits for an answer before it has joined (`Session.register`)."""

_LAST_TRY = 15.0
"""Its last call has a deadline of its own, and it is started anew after a pause."""

_ENOUGH = 20.0
"""Who does not reach a coordinator that runs for so long at a stretch has no such excuse."""


class Joining:
    """See the module.

    Args:
        world: whose processes they are.
    """

    def __init__(self, world: Any):
        self._world = world
        self._nodes: Mapping[str, Any] = {}
        self._joined: set[str] = set()  # nonces
        self._cut_off: dict[Process, float] = {}  # since when, as far as somebody looked
        self._runs: list[tuple[float, float]] = []  # of coordinators that have ended

    def saw(self, job: Any) -> None:
        """Take note of a new state of the coordinator: that of the job."""
        if job.nodes is not self._nodes:
            self._nodes = job.nodes
            self._joined |= {node.nonce for node in job.nodes.values()}

    def coordinator_ended(self, began: float) -> None:
        """Take note that a coordinator has ended which had begun then."""
        self._runs.append((began, self._world.scheduler.now))

    def has_given_up(self, process: Process, error: Exception) -> bool:
        """Return whether a script has ended by this since it is cut off and has not joined, or none ran for long."""
        return isinstance(error, CoordinatorLost) and (self._is_shut_out(process) or self._longest_run() < _ENOUGH)

    def _longest_run(self) -> float:
        """Return for how long a coordinator ran, at most, in the time for which a process waits to join."""
        now = self._world.scheduler.now
        since = now - _PATIENCE - _LAST_TRY
        runs = [*self._runs, (self._world.coordinator_changed, now)] if self._coordinators() else self._runs
        return max((ended - max(began, since) for began, ended in runs), default=0.0)

    def is_awaited(self) -> bool:
        """Return whether the job may wait for a process that has no way to the coordinator, and has not joined yet."""
        now = self._world.scheduler.now
        awaited = False
        for process in self._world.processes:
            if process.role not in (WORKER, SERVER) or process.state != RUNS:
                continue
            if self._is_shut_out(process):
                awaited |= now - self._cut_off.setdefault(process, now) < _PATIENCE + _LAST_TRY
        return awaited

    def _coordinators(self) -> list[Process]:
        return [each for each in self._world.processes if each.role == COORDINATOR and each.state != DEAD]

    def _is_shut_out(self, process: Process) -> bool:
        """Return whether a process has not joined, and no message of its goes to a coordinator or comes back."""
        if process.environment["ELASTIC_NONCE"] in self._joined:
            return False
        network = self._world.network
        ways = [way for other in self._coordinators() for way in ((process, other), (other, process))]
        return any(network.is_blocked(*way) for way in ways)
