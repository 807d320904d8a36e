"""A `Provoker` brings about the phase of a job that a fault waits for, where it does not come by itself."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from coordinator.core.job import DurableJob
from coordinator.core.plans.protection import protection
from tests.world.faults.cells import DEATH, FILLING, MOVERS, PLAN_PHASES, RESTORE, SERVER, WORKER
from tests.world.faults.job_draw import Fault
from tests.world.faults.operator import Operator
from tests.world.kernel.scheduler import Process

_SOON = 6.0
"""Seconds for which a fault waits for its phase."""

_LONG = 15.0
"""Likewise where more nodes may have to come before one can die."""

_MOST_WORKERS = 4
_HELD_SECONDS = 0.5


class Provoker:
    """See the module.

    Args:
        world: whose job it is.
        operator: asks for scalings.
        kill: kills a process of a fault's role.
    """

    def __init__(self, world: Any, operator: Operator, kill: Callable[[Fault], str]):
        self._world, self._operator, self._kill = world, operator, kill
        self._replicas = bool(world.draw.replicas)
        self._grown: Fault | None = None  # the last one for which more nodes were asked for
        self._held: list[Process] | None = None  # servers that have started and do not come yet; None: they may

    @property
    def _job(self) -> DurableJob:
        return self._world.injector.state.job  # type: ignore[no-any-return]

    def patience(self, fault: Fault) -> float:
        """Return for how many seconds a fault waits for its phase; then it comes whatever the phase is."""
        if fault.phase in (DEATH, FILLING):
            return _LONG if self._needed(fault)[1] <= len(self._job.model.blocks) else 0.0
        return _SOON

    def bring_about(self, fault: Fault) -> bool:
        """Bring a fault's phase about, by a scaling or by deaths; return False where nodes have to come before."""
        if not self._is_ready(fault):
            return False
        self._world.story.tell("FAULT", f"{fault.number} wants {fault.phase}")
        if fault.phase in PLAN_PHASES:
            self._operator.scale(self._another(fault))
        elif fault.phase in (RESTORE, DEATH, FILLING):
            self._world.guarantee.single = None
            if fault.phase == FILLING:
                self._release(self._held)
                self._held = []
            role = WORKER if fault.phase == DEATH and not self._by_server() else SERVER
            for number in range(2 if fault.phase == RESTORE and self._replicas else 1):
                self._kill(replace(fault, role=role, choice=fault.choice + number))
        return True

    def _by_server(self) -> bool:
        """Return whether a server's death costs no restore."""
        return self._replicas and len(self._job.model.blocks) > 1

    def _needed(self, fault: Fault) -> tuple[int, int]:
        """Return how many workers and servers there must be for a death to bring a fault's phase about."""
        if fault.phase == FILLING:
            return 1, 3
        if self._world.draw.serverless:
            return (2, 0) if fault.phase == DEATH else (1, 0)
        if fault.phase == DEATH:
            return (1, 2) if self._by_server() else (2, 1)
        return 1, 1

    def _is_ready(self, fault: Fault) -> bool:
        """Return whether there are enough nodes, and followers; else ask for more nodes, once."""
        job = self._job
        workers, servers = self._needed(fault)
        if job.configuration is None:
            return False
        lacks = (
            workers if len(job.configuration.workers) < workers else 0,
            servers if len(job.configuration.servers) < servers else 0,
        )
        if any(lacks):
            if self._grown is not fault:
                self._grown = fault
                self._operator.scale(replace(fault, workers=lacks[0], servers=lacks[1]))
            return False
        found = protection(job)
        return servers <= 1 or found.blocks == found.all_blocks

    def _another(self, fault: Fault) -> Fault:
        """Return a scaling to what the job does not have and can have; for REGISTERED one by which somebody joins."""
        goal, blocks = self._job.goal, len(self._job.model.blocks)
        workers, servers = fault.workers, min(fault.servers, blocks)
        if fault.phase == PLAN_PHASES[0] or workers == goal.workers:
            workers = goal.workers % _MOST_WORKERS + 1
        if fault.role == MOVERS and servers == goal.servers:
            servers = servers + 1 if servers < blocks else max(1, servers - 1)
        return replace(fault, workers=workers, servers=servers)

    # ---- servers that are slow to come -------------------------------------------------------------------------------

    def started(self, process: Process) -> None:
        """Take note of a new process. A server waits where followers are to be made: they are, while none comes."""
        if self._held is not None and process.role == SERVER:
            self._world.scheduler.freeze(process)
            self._held.append(process)

    def changed(self, phase: str) -> None:
        """Take note that the job has come to another phase."""
        if phase == RESTORE:  # it waits for all of its servers
            self._release(self._held)

    def struck(self) -> None:
        """Take note that a fault has come: servers that wait come soon."""
        scheduler = self._world.scheduler
        scheduler.call_at(scheduler.now + _HELD_SECONDS, partial(self._release, self._held))

    def _release(self, held: list[Process] | None) -> None:
        for process in held or ():
            self._world.scheduler.thaw(process)
        if held is self._held:
            self._held = None
