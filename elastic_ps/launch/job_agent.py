"""This module launches a whole job: one loop owns the job's processes on this machine.

Threads post events (a wish of the coordinator, an exit, a signal) into one queue; the loop takes them one at a time,
asks `decide` what to do, and does it. It runs in the thread that starts the processes, which they die with.
"""

import math
import queue
import secrets
import signal
import time

from elastic_ps.control.token import read_token
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_LATER, ConfigurationError, CoordinatorLost
from elastic_ps.core.script_hints import HOW_TO_JOIN
from elastic_ps.launch import decide
from elastic_ps.launch.commands import ProcessCommands, node_environment
from elastic_ps.launch.coordinator_link import CoordinatorLink
from elastic_ps.launch.coordinator_process import NAME, CoordinatorProcess, CoordinatorReady
from elastic_ps.launch.decide import LocalProcess, WantedNodes
from elastic_ps.launch.job_folder import JobFolder
from elastic_ps.launch.launcher_events import (
    CoordinatorSilent,
    ExitTold,
    LauncherRefused,
    LauncherSignalled,
    ProcessExited,
)
from elastic_ps.launch.options import JobSettings
from elastic_ps.launch.outcome import LauncherOutcome
from elastic_ps.launch.processes.children import JOIN_SECONDS, Children
from elastic_ps.launch.processes.failed_starts import FailedStarts
from elastic_ps.launch.processes.output import MergedStream, NodeLog
from elastic_ps.launch.processes.returning_nodes import ReturningNodes
from elastic_ps.launch.processes.stillness import STILL_SECONDS
from elastic_ps.launch.restart_budget import RestartBudget
from elastic_ps.system.printable import one_line
from elastic_ps.system.process.signals import SignalCount
from protos import elastic_pb2 as pb

_DELIVERY_SECONDS = _FLUSH_SECONDS = 5.0
_EXPELLED_SECONDS = 2.0  # so that a process which is not frozen ends by itself and says why in its log
_SILENT_SECONDS = 20.0  # beyond a lease
_GOES_ON = "the job goes on without it, which does not count against --max-restarts"


_Event = (
    WantedNodes | CoordinatorReady | ProcessExited | ExitTold | LauncherSignalled | LauncherRefused | CoordinatorSilent
)


class JobAgent:
    """A `JobAgent` runs one job to its end.

    Args:
        settings: the job.
        folder: held for this job.
        commands: what its processes are.
        merged: takes every line of output, and the launcher's own.
    """

    def __init__(self, settings: JobSettings, folder: JobFolder, commands: ProcessCommands, merged: MergedStream):
        self._settings = settings
        self._folder = folder
        self._commands = commands
        self._merged = merged
        self._log = NodeLog(folder.logs, "elasticrun", merged)
        self._events: queue.SimpleQueue[_Event | None] = queue.SimpleQueue()
        self._children = Children(folder.logs, merged, self._exited)
        self._coordinator = CoordinatorProcess(
            settings, folder, commands, merged, self._events.put, lambda status: self._exited(NAME, status)
        )
        self._link: CoordinatorLink | None = None
        self._wanted: WantedNodes | None = None
        self._budget = RestartBudget(settings.job.max_restarts)
        self._failed_starts = FailedStarts()
        self._returning = ReturningNodes(settings.nodes.join_timeout)
        self._untold: dict[str, tuple[LocalProcess, str] | None] = {}  # ended: had they registered? Else deaths
        self._last_death = "", ""  # the node's name, and what people are told
        self._outcome: LauncherOutcome | None = None
        self._signal_count = SignalCount()
        self._signals = 0  # of those that count
        self._starts = 0
        self._told_to_stop = False  # the coordinator, which tells all nodes

    def signalled(self, number: int) -> None:
        """End the job because of a signal: the first in order, a later one at once. Safe in a signal handler."""
        if self._signal_count.heard():  # a session that is lost sends two SIGHUPs, systemd may SIGTERM and SIGHUP
            self._events.put(LauncherSignalled(number))

    def _exited(self, nonce: str, status: int) -> None:
        self._events.put(ProcessExited(nonce, status))

    def run(self) -> LauncherOutcome:
        """Run until every process has ended; leave none behind, whatever is raised."""
        started = time.time()
        try:
            self._coordinator.begin()
            while self._outcome is None or self._children:
                self._take(self._next())
                self._decide()
                self._enforce()
            self._await_others()
            failed = self._outcome.word == "failed"  # what it wanted is not what it had then
            counts = self._wanted.counts if self._wanted is not None and not failed else {}
            line = self._outcome.summary(self._folder.name, time.time() - started, self._last_status(), counts)
            self._say(f"{line}; logs: {self._folder.logs}")
            return self._outcome
        finally:
            outcome = self._outcome or LauncherOutcome(1, "failed", "the launcher failed")
            self._children.kill()
            self._folder.over(outcome.status, outcome.reason or outcome.word)
            self._end_coordinator()
            self._folder.ended()
            self._merged.flush(_FLUSH_SECONDS)
            self._log.close()

    # ---- events ------------------------------------------------------------------------------------------------

    def _next(self) -> _Event | None:
        """Return the next event, or None when a deadline has come."""
        starts = min(self._failed_starts.deadline, self._returning.deadline)
        deadline = min(self._coordinator.deadline, self._children.deadline, starts)
        try:
            return self._events.get(timeout=None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None

    def _take(self, event: _Event | None) -> None:
        match event:
            case WantedNodes():
                self._on_wanted(event)
            case CoordinatorReady():
                self._on_ready(event)
            case ProcessExited(nonce, status) if nonce == NAME:
                self._on_coordinator_exit(status)
            case ProcessExited(nonce, status):
                self._on_exit(nonce, status)
            case ExitTold(nonce, known):
                self._on_told(nonce, known)
            case LauncherSignalled(number):
                self._on_signal(number)
            case LauncherRefused(reason):
                self._stop(LauncherOutcome(1, "failed", reason), now=True)
            case CoordinatorSilent(seconds, which) if self._is_there(which):
                self._say(f"the coordinator runs and has not answered for {seconds:.0f} s: killed")
                self._coordinator.kill()

    def _on_wanted(self, wanted: WantedNodes) -> None:
        for nonce in decide.outdated(self._children.locals, wanted):
            self._children.kill_in(nonce, self._settings.nodes.grace, wanted=False)
        self._wanted = wanted
        self._failed_starts.observe(wanted)
        for node in self._returning.observe(wanted, time.monotonic()):
            most = f"{self._returning.patience:g} s at most"
            self._say(f"{node} has a launcher of its own, which starts it again: it is waited for, {most}")
        expelled = {local.nonce for local in self._children.locals if local.expelled}
        for news in self._children.observe(wanted):
            self._say(news)
        for local in self._children.locals:
            if local.expelled and local.nonce not in expelled and not local.ending:  # else it has its time already
                seconds = self._settings.nodes.grace if local.leaving else _EXPELLED_SECONDS
                self._say(f"the job goes on without {local.name}: its process is killed in {seconds:g} s")
                self._children.kill_in(local.nonce, seconds)
        if wanted.failed:
            self._fail_late(wanted.reason)

    def _on_ready(self, event: CoordinatorReady) -> None:
        try:
            self._coordinator.ready(event)
        except OSError as error:  # nothing has trained yet, and nobody would find the job
            reason = f"{self._folder.path} cannot be written: {error.strerror}"
            self._stop(LauncherOutcome(EXIT_LATER, "failed", reason), now=True)
            return
        address = f"{event.host}:{event.port}"
        self._say(f"job {self._folder.name}: coordinator {address}, folder {self._folder.path}")
        if self._link is None:
            self._link = CoordinatorLink(address, read_token(self._folder.token_file))
            put = self._events.put
            self._link.attach(
                put, lambda why: put(LauncherRefused(why)), lambda nonce, known: put(ExitTold(nonce, known))
            )
            silent = self._settings.job.lease + _SILENT_SECONDS
            self._link.watch(silent, lambda seconds, which: self._events.put(CoordinatorSilent(seconds, which)))
        self._link.begin_anew()

    def _is_there(self, which: int) -> bool:
        """Return whether the coordinator that did not answer is the one that listens now."""
        return self._link is not None and self._coordinator.listens and which == self._link.coordinators

    def _on_told(self, nonce: str, known: bool) -> None:
        ended = self._untold.pop(nonce, None)
        if ended is not None:
            self._say(f"{nonce} has ended with status 0") if known else self._on_death(*ended)

    def _on_exit(self, nonce: str, status: int) -> None:
        local, log = self._children.remove(nonce)
        if self._link is not None:
            self._link.exited(nonce, local.node, status)
            if not local.node:
                self._untold[nonce] = None
        if decide.is_death(local, status, self._wanted):
            death = decide.describe_death(local, status, str(log.path), log.last)
            if status or self._link is None:
                self._on_death(local, death)
            else:  # where a path was broken, it may have joined, drained and ended since the coordinator's last word
                self._untold[nonce] = local, death
            return
        news = f"{local.name} has ended with status {status}"
        if decide.ended_early(local, status, self._wanted):
            when = decide.when(self._failed_starts.rest(local, time.monotonic()))
            news += f" before it belonged to the job; one that is wanted is started {when}"
        self._say(news)
        if decide.is_failure(local, status, self._wanted):
            death = decide.describe_death(local, status, str(log.path), log.last)
            self._fail_late(f"its workers had finished, but {death}")

    def _on_death(self, local: LocalProcess, death: str) -> None:
        self._last_death = local.name, death
        seconds = self._failed_starts.ended(local, time.monotonic())
        if seconds is None:
            self._spend(death)
            self._say(death)
            return
        self._say(f"{death}; {_GOES_ON}: another one is started {decide.when(seconds)}")

    def _spend(self, death: str) -> None:
        version = self._link.version if self._link is not None else 0
        self._budget = self._budget.spend(death, time.monotonic(), version)

    def _fail_late(self, reason: str) -> None:
        """Fail a job that had finished, as it seemed."""
        if self._outcome is not None and self._outcome.word == "finished":
            self._outcome = LauncherOutcome(1, "failed", reason)

    def _on_coordinator_exit(self, status: int) -> None:
        end = self._coordinator.ended(status)
        if self._outcome is not None:
            if self._outcome.word == "finished" and self._children:
                self._say(f"the coordinator ended with {end.how}; it is started again: nodes have things to tell")
                self._coordinator.start_later()
            return
        death = f"the coordinator {'ended with' if end.listened else 'did not start:'} {end.how}"
        if end.final:
            self._stop(LauncherOutcome(1, "failed", death), now=True)
            return
        if end.counts:
            self._spend(death)
        if not self._budget.exhausted:
            when = decide.when(self._coordinator.start_later())
            more = "" if end.counts else ", which does not count against --max-restarts"
            goes_on = "training goes on without it; it is started again from its journal"
            self._say(f"{death}; {goes_on if end.listened else 'it is tried again'} {when}{more}")

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        outcome = LauncherOutcome(128 + number, "stopped", f"by {signal.Signals(number).name}")
        if self._signals > 1:
            self._say("killing the job")
            self._outcome = outcome
            self._children.kill()
        elif self._outcome is None:
            self._say(f"{signal.Signals(number).name}: ending the job; once more kills it")
            self._stop(outcome, now=False)
        else:
            self._finish(outcome, patience=0.0)

    # ---- decisions ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Do what `decide.plan` says."""
        now = time.monotonic()  # first: a pause that is over is no deadline any more
        resting, away = self._failed_starts.resting(now), self._returning.away(now)
        if self._outcome is not None:
            return
        if self._untold:  # the coordinator may count one as there: the next would be one too many, and be kept
            resting = frozenset(Role)
        for action in decide.plan(self._wanted, self._children.locals, self._budget, resting, away):
            match action:
                case decide.StartProcesses(role, count):
                    for _ in range(count):
                        if not self._start_node(role):
                            break
                case decide.EndProcess(nonce):
                    self._say(f"{nonce} is no longer wanted")
                    self._children.end(nonce, patience=0.0, grace=self._settings.nodes.grace)
                case decide.Finish(failed, reason):
                    reason = decide.with_death(reason, *self._last_death) if failed else reason
                    self._say(f"the job is over: {reason}")
                    self._finish(
                        LauncherOutcome(1, "failed", reason) if failed else LauncherOutcome(0, "finished", reason)
                    )
                case decide.GiveUp(reason):
                    self._stop(LauncherOutcome(1, "failed", reason), now=True)

    def _stop(self, outcome: LauncherOutcome, now: bool) -> None:
        """End the job through the coordinator, or by signals at once where it cannot."""
        failed = outcome.word == "failed"
        if failed:
            self._say(f"ending the job: {outcome.reason}")
        patience = 0.0
        if self._coordinator.runs and self._link is not None:
            try:
                self._link.stop(now, outcome.reason if failed else f"{outcome.word} {outcome.reason}", failed)
                patience, self._told_to_stop = self._settings.nodes.grace, True
            except (CoordinatorLost, ConfigurationError) as error:
                self._say(f"the coordinator cannot end the job ({error}); its processes are told by signal")
        self._finish(outcome, patience)

    def _finish(self, outcome: LauncherOutcome, patience: float | None = None) -> None:
        """Let the processes of a job that is over end by themselves within `patience` seconds, or make them."""
        self._outcome = outcome
        if outcome.word != "finished":  # else nodes have the ledger's last entries, which nobody would take
            self._coordinator.forget()
        grace = self._settings.nodes.grace
        self._children.end_all(grace if patience is None else patience, grace)

    def _enforce(self) -> None:
        """Make end what should have ended by now."""
        for name in self._children.enforce():
            self._say(f"{name} does not end: killed")
        for name in self._children.late():
            self._say(f"{name} has run for {JOIN_SECONDS:.0f} s without joining the job; {HOW_TO_JOIN}")
        for name in self._children.still():
            self._say(f"{name} has been stopped for {STILL_SECONDS:.0f} s without joining the job: killed")
        if news := self._coordinator.enforce():
            self._say(news)

    def _await_others(self) -> None:
        """Let nodes of other launchers end before the coordinator: they have to hear of the end, and to tell what they
        have for the ledger. They may be dead by now, or on machines that are gone: `--grace` bounds it."""
        deadline, told = time.monotonic() + self._settings.nodes.grace, False
        while self._signals < 2 and self._coordinator.runs and (others := self._others()):
            if not told:
                self._say(f"waits for {others} of other launchers to end, {self._settings.nodes.grace:g} s at most")
                told = True
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._say(f"waits no longer for {others}")
                return
            if isinstance(event, LauncherSignalled):
                return
            self._take(event)

    def _others(self) -> str:
        """Return the nodes of other launchers that have not ended, for people; "" where nobody has told them to."""
        if self._wanted is None or not (self._wanted.ended or self._told_to_stop):
            return ""
        return ", ".join(sorted(self._returning.others(self._wanted).values()))

    # ---- processes ---------------------------------------------------------------------------------------------

    def _start_node(self, role: Role) -> bool:
        """Start a process; return whether the system had one, as it may have more later."""
        self._starts += 1
        local, join = LocalProcess(f"{role}-{self._starts}-{secrets.token_hex(3)}", role), self._coordinator.join
        self._returning.started(local.nonce)
        try:
            self._children.start(
                local, self._commands.node(role, join, local.nonce), node_environment(join, local.nonce)
            )
        except OSError as error:
            self._on_death(local, f"{role} {local.name} could not be started: {error.strerror}")
            self._events.put(None)  # it is decided anew
            return False
        return True

    def _end_coordinator(self) -> None:
        """End the coordinator last of all, so that it has heard of every exit. One more signal kills it."""
        if self._link is not None:
            self._link.close(_DELIVERY_SECONDS if self._coordinator.runs else 0.0)
        if not self._coordinator.runs:
            return
        self._coordinator.terminate()
        deadline = time.monotonic() + self._settings.nodes.grace
        while True:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._say("the coordinator does not end: killed")
                event, deadline = LauncherSignalled(signal.SIGKILL), time.monotonic() + self._settings.nodes.grace
            if isinstance(event, LauncherSignalled):
                self._coordinator.kill()
            elif isinstance(event, ProcessExited) and event.nonce == NAME:
                return

    # ---- for people --------------------------------------------------------------------------------------------

    def _last_status(self) -> pb.StatusReply | None:
        if not self._coordinator.runs or self._link is None:
            return None
        try:
            return self._link.status()
        except (CoordinatorLost, ConfigurationError):
            return None

    def _say(self, text: str) -> None:
        self._log.line(f"{one_line(text)}\n".encode())
