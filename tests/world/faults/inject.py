"""An `Injector` brings a draw's faults about, each in the phase that it is for, where that comes soon."""

import signal
from collections.abc import Callable
from typing import Any

from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.plans.plan import PlanKind
from tests.world.faults import cells as kinds
from tests.world.faults.cells import DEATH, FILLING, OPERATOR, PLAN_PHASES, REST, RESTORE
from tests.world.faults.job_draw import FOR_EVER, Fault
from tests.world.faults.operator import Operator
from tests.world.faults.provoke import Provoker
from tests.world.kernel.scheduler import DEAD, RUNS, Process
from tests.world.oracles.guarantee import Guarantee

_PROVOKED = 0.3
"""After so many seconds in which the phase has not come by itself it is brought about."""

_PATIENCE_SECONDS = 60.0
"""After so long the next fault comes, though the job may not have got over the last one."""

_MOST_AT_ONCE = 3
_LOOK_SECONDS = 0.2
_LINK_SECONDS = 0.02  # where the phase is here, and a connection that a fault is to meet is not


def _phase_of(job: DurableJob) -> str:
    """Return a job's phase, as the coverage table calls it."""
    plan = job.plan
    if job.phase is JobPhase.RESTORING or (plan is not None and plan.restore):
        return RESTORE
    if plan is None or plan.phase not in PLAN_PHASES:
        return REST
    if plan.kind is PlanKind.DEATH:
        return DEATH
    return FILLING if plan.background else str(plan.phase)


class Injector:
    """See the module.

    Args:
        world: whose faults they are.
    """

    def __init__(self, world: Any):
        self._world = world
        self._scheduler, self._network = world.scheduler, world.network
        self._coming = list(world.draw.faults)
        self._not_before = 0.0
        self._operator = Operator(world)
        self.provoker = Provoker(world, self._operator, self._kill)
        self._guarantee: Guarantee = world.guarantee
        self._patience = 0.0
        self.lasting: set[int] = set()  # numbers of faults that pass by themselves, later
        self._provoked = self._rebuilding = False
        self.state: Any = None  # the coordinator's last
        self.journal_lost = False
        self.late = False  # something has come about after a script's end
        self._bereft: Any = None  # the id of the configuration in which a server has died
        self._drained: set[Process] = set()  # whom a second SIGTERM kills
        self.phase = REST
        self._depth = ""  # the phase of its own that the plan under way is in
        self.last = 0.0  # when the last one came, or ended
        self.hits: list[tuple[str, str, str]] = []  # role, phase, kind of those that came about

    def saw(self, state: Any) -> None:
        """Take note of a new state of the coordinator."""
        job, self.state = state.job, state
        if job.ended:
            self._coming.clear()
            ends_bereft = job.configuration is not None and job.configuration.id == self._bereft
            self.late |= (self._is_cut_off() or ends_bereft) and not self._is_survived()
        self._rebuilding &= not state.rebuilt
        self._guarantee.saw(job)
        phase, depth = _phase_of(job), str(job.plan.phase) if job.plan is not None else ""
        if phase != self.phase:
            self.phase, self._depth = phase, depth
            self.provoker.changed(phase)
            self._look_soon(self._network.random.random() * 0.004)
        elif depth != self._depth:
            self._depth = depth
            if self._coming and self._coming[0].deep == depth:
                self._look_soon(self._network.random.random() * 0.004)
        if not self._not_before and (job.checkpoints or (job.all_reduces and job.model.blocks)):
            self._not_before = self._scheduler.now + 0.001
            self._next()

    @property
    def is_over(self) -> bool:
        """Return whether no fault comes any more, and the job has got over the last one for a lease."""
        if not self.hits or self._coming or self.lasting or self._rebuilding:
            return False
        job, since = self.state.job, max(self.last, self._world.coordinator_changed)
        at_peace = job.phase is JobPhase.RUNNING and job.plan is None and not job.dead and not self.state.suspected
        return at_peace and self._scheduler.now > since + self._world.draw.lease

    def lost(self, process: Process, status: int) -> None:
        """Take note of a process's end: who is killed at the job's end keeps its last ledger entries,
        where it is no server whose blocks have followers."""
        ending = bool(self._world.watch.scripts_ended) or (self.state is not None and self.state.job.ended)
        if self._world.draw.serverless:  # a worker that a second SIGTERM ends waits for the others no more
            self.late |= process.role == kinds.WORKER and ending and (status != 0 or process in self._drained)
        else:
            self.late |= process.role == kinds.SERVER and ending and status != 0 and not self._is_survived()
        configuration = self.state.job.configuration if self.state is not None else None
        if process.role == kinds.SERVER and status != 0 and configuration is not None:
            self._bereft = configuration.id  # the last step's answers may be on their way, and scripts end with them

    def _is_survived(self) -> bool:
        """Return whether the last fault is a server's death that costs nothing, at the job's end either."""
        single = self._guarantee.single
        return single is not None and single.role == kinds.SERVER and single.kind in (kinds.KILL, kinds.VANISH)

    def _is_cut_off(self) -> bool:
        """Return whether a server has no way to the coordinator, or back: its last ledger entries stay with it."""
        running = [process for process in self._world.processes if process.state != DEAD]
        coordinators = [process for process in running if process.role == kinds.COORDINATOR]
        return any(
            self._network.is_blocked(*way)
            for server in running
            if server.role == kinds.SERVER
            for other in coordinators
            for way in ((server, other), (other, server))
        )

    def _next(self) -> None:
        if self._coming:
            self._patience = self._scheduler.now + _PATIENCE_SECONDS
            self._not_before = self._scheduler.now + self._coming[0].after
            self._look_soon(self._coming[0].after)

    def _look_soon(self, seconds: float) -> None:
        self._scheduler.call_at(self._scheduler.now + seconds, self._look)

    def _look(self) -> None:
        now = self._scheduler.now
        if not self._coming or not self._not_before or now < self._not_before:
            return
        fault = self._coming[0]
        if self._rebuilding or len(self.lasting) >= _MOST_AT_ONCE:
            self._look_soon(_LOOK_SECONDS)
        elif self._world.draw.apart and now < self._patience and not self._guarantee.is_whole():
            self._not_before = max(self._not_before, now)
            self._look_soon(_LOOK_SECONDS)
        elif not self._is_met(fault) and now < self._not_before + self.provoker.patience(fault):
            is_due = not self._provoked and now >= self._not_before + _PROVOKED
            if self.phase == REST != fault.phase and is_due and not self._has_finished():
                self.last = now
                self._provoked = self.provoker.bring_about(fault)
            self._look_soon(_LOOK_SECONDS if fault.phase != self.phase else _LINK_SECONDS)
        else:
            del self._coming[0]
            self._provoked = False
            self._strike(fault)
            self.provoker.struck()
            self._next()

    def _has_finished(self) -> bool:
        """Return whether a worker's script has ended, though the word for it may be on its way yet."""
        return bool(self._world.watch.scripts_ended or self.state.job.finished)

    def _is_met(self, fault: Fault) -> bool:
        """Return whether the job is in a fault's phase, and has the connection that it is to meet."""
        is_here = fault.phase == self.phase and fault.deep in ("", self._depth)
        return is_here and ("-" not in fault.role or self._link(fault) is not None)

    def _strike(self, fault: Fault) -> None:
        acts: dict[str, Callable[[Fault], str]] = {
            kinds.KILL: self._kill,
            kinds.VANISH: self._vanish,
            kinds.POWER: self._lose_power,
            kinds.LOSE: self._lose_journal,
            kinds.FREEZE: self._freeze,
            kinds.RESET: self._reset,
            kinds.DROP: self._drop,
            kinds.DELAY: self._delay,
            kinds.FULL: self._fail_disk,
            kinds.BROKEN: self._fail_disk,
            kinds.JUMP: self._jump,
            kinds.SCALE: self._operator.scale,
            kinds.DRAIN: self._drain,
            kinds.SAVE: self._operator.save,
        }
        finishing = bool(self.state.job.finished)
        if self._has_finished() and fault.role == kinds.WORKER and fault.kind in (kinds.KILL, kinds.DRAIN):
            return  # it would end a process whose script has ended: such a job has failed, by design
        if fault.kind not in OPERATOR:
            self._guarantee.struck(fault)
        whom = acts[fault.kind](fault)
        if whom:
            self.late |= finishing and not self._is_survived()
            self.last = max(self.last, self._scheduler.now + (fault.lasts if fault.lasts < FOR_EVER else 0.0))
            self.hits.append((fault.role, self.phase, fault.kind))
            self._world.story.tell("FAULT", f"{fault} ({self.phase}): {whom}")

    def _ends(self, fault: Fault, act: Callable[[], None]) -> None:
        """Let a fault end when it has lasted long enough."""
        if fault.lasts == FOR_EVER:
            return
        self.lasting.add(fault.number)

        def end() -> None:
            self.lasting.discard(fault.number)
            act()
            self._world.story.tell("FAULT", f"{fault.number} ends")

        self._scheduler.call_at(self._scheduler.now + fault.lasts, end)

    # ---- processes ---------------------------------------------------------------------------------------------------

    def _of(self, role: str, choice: int) -> Process | None:
        every = [self._world.launcher, *self._world.processes]
        found = [each for each in every if each.role == role and each.state == RUNS]
        return found[choice % len(found)] if found else None

    def _mortal(self, role: str, choice: int) -> Process | None:
        """Return a process that may die: the last worker that has the parameters of a job without servers may not."""
        process = self._of(role, choice)
        return None if process is not None and self._is_last(process) else process

    def _is_last(self, *processes: Process) -> bool:
        survivors = self._world.survivors
        if not self._world.draw.serverless or self.state.job.checkpoints:  # else it has something to go back to
            return False
        return any(survivors.is_last(each) for each in processes)

    def _kill(self, fault: Fault) -> str:
        process = self._mortal(fault.role, fault.choice)
        if process is not None:
            self._world.kill(process)
        return str(process or "")

    def _vanish(self, fault: Fault) -> str:
        process = self._mortal(fault.role, fault.choice)
        if process is not None:
            self._scheduler.freeze(process)
            self._network.vanish(process)
        return str(process or "")

    def _lose_power(self, fault: Fault) -> str:
        whom = self._kill(fault)
        return f"{whom}, lost: {self._world.disk.lose_power()}" if whom else ""

    def _lose_journal(self, fault: Fault) -> str:
        """Lose it once, from a job that runs: where nobody is left who knows it, its coordinator waits an hour.

        Until the nodes have told what they know, nothing else happens.
        """
        job = self.state.job
        if self.journal_lost or job.finished or job.phase is not JobPhase.RUNNING or self.phase == RESTORE:
            return ""
        if self._world.draw.serverless and not self._world.survivors.holders():  # the last one has just vanished
            return ""
        whom = self._kill(fault)
        if whom:
            self.journal_lost = self._rebuilding = True
            self._world.disk.lose_journal()
        return whom

    def _freeze(self, fault: Fault) -> str:
        process = self._mortal(fault.role, fault.choice)
        if process is not None:
            self._scheduler.freeze(process)
            self._ends(fault, lambda: self._scheduler.thaw(process))
        return str(process or "")

    def _jump(self, fault: Fault) -> str:
        """Set the clock of the day to another hour, and let the other one go on by up to four leases at once."""
        process = self._of(fault.role, fault.choice)
        if process is None:
            return ""
        seconds = (fault.choice & 0xFF) / 64 * self._world.draw.lease
        hours = (fault.choice >> 8 & 0xF) - 8
        process.ahead = process.ahead[0] + seconds, process.ahead[1] + seconds + 3600.0 * hours
        return f"{process} by {seconds:.2f} s, and {hours} h"

    def _fail_disk(self, fault: Fault) -> str:
        self._world.disk.fail(fault.role, fault.kind)
        self._ends(fault, lambda: self._world.disk.heal(fault.role))
        return fault.role

    # ---- links -------------------------------------------------------------------------------------------------------

    def _link(self, fault: Fault) -> tuple[Process, Process] | None:
        near, _, far = fault.role.partition("-")
        every = [self._world.launcher, *self._world.processes]
        pairs = {
            (end.process, end.other.process): None
            for process in every
            if process.role == near and process.state != DEAD
            for end in process.ends
            if end.other.process.role == far and end.other.process is not process
        }
        found = list(pairs)
        return found[fault.choice % len(found)] if found else None

    def _way(self, fault: Fault) -> tuple[Process, Process] | None:
        link = self._link(fault)
        return link[::-1] if link is not None and fault.choice & 0x8000 else link

    def _reset(self, fault: Fault) -> str:
        link = self._link(fault)
        return f"{link[0]} and {link[1]}" if link is not None and self._network.reset(*link) else ""

    def _drop(self, fault: Fault) -> str:
        way = self._way(fault)
        if way is None or (fault.role in kinds.LINKS and self._is_last(*way)):
            return ""
        self._network.block(*way)
        self._ends(fault, lambda: self._network.heal(*way))
        return f"{way[0]} to {way[1]}"

    def _delay(self, fault: Fault) -> str:
        seconds = 0.02 + (fault.choice & 0xFF) / 256
        if fault.role == kinds.STORAGE:
            storage = self._world.disk.storage
            storage.slow = seconds
            self._ends(fault, lambda: setattr(storage, "slow", 0.0))
            return fault.role
        way = self._way(fault)
        if way is None:
            return ""
        self._network.slow(*way, seconds)
        self._ends(fault, lambda: self._network.slow(*way, 0.0))
        return f"{way[0]} to {way[1]}"

    def _drain(self, fault: Fault) -> str:
        """SIGTERM, as of a pod that is to go."""
        process = self._of(fault.role, fault.choice)
        if process is not None:
            if process in self._drained:  # the second signal kills it
                if self._is_last(process):
                    return ""
                self._guarantee.struck(fault)
            self._drained.add(process)
            self._world.signal(process, signal.SIGTERM)
        return str(process or "")
