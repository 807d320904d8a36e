"""A cluster of virtual nodes whose jobs are processes of this machine."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dl2_scheduler.backends.clock import Clock
from dl2_scheduler.backends.local import decide, holding, views
from dl2_scheduler.backends.local.actions import Actions, shape_of, working_folder
from dl2_scheduler.backends.local.job_records import Changes, JobRecord, JobRecords
from dl2_scheduler.backends.local.loads import load_of, placed
from dl2_scheduler.backends.local.placing import TaskDemand, place
from dl2_scheduler.backends.local.runtime import Declined, JobReport, JobRuntime, LauncherEnding, Over, Unreachable
from dl2_scheduler.cluster.document import ElasticJob, read_document
from dl2_scheduler.cluster.errors import BadInput, NoSuchJob, RequestRefused
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.live import ClusterLoad, JobPhase, JobStatus
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, Snapshot, SpeedReport

log = logging.getLogger(__name__)


class LocalCluster:
    """See `LiveCluster`. Jobs that run when it is made, of an earlier one with the same records, go on.

    Args:
        nodes: virtual.
        slot_seconds: length of a slot.
        records: of its jobs.
        runtime: runs them.
        clock: measures slots.
        rule: by which tasks of held jobs find their node.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        slot_seconds: float,
        records: JobRecords,
        runtime: JobRuntime,
        clock: Clock,
        rule: NodeRule = NodeRule.SPREAD,
    ) -> None:
        self._nodes = tuple(nodes)
        self._slot_seconds = slot_seconds
        self._records = records
        self._runtime = runtime
        self._clock = clock
        self._rule = rule
        self._actions = Actions(records, runtime, clock)
        self._closing = False
        self._began_slot = clock.now()
        self._slot = records.slot
        self._before: list[JobRecord] = []
        self._reports: dict[int, JobReport] = {}
        self._over: dict[int, LauncherEnding] = {}
        self._speeds: tuple[SpeedReport, ...] = ()
        self._granted: Mapping[int, Grant] = {}
        self._find_again()

    # ---- people, from any thread -----------------------------------------------------------------------------------

    def submit(self, document: str, folder: Path) -> str:
        """See `LiveCluster.submit`."""
        read = read_document(document)
        holding.check_submitted(read, self._nodes)
        _check_working_folder(read, folder)
        last = self._records.last(read.metadata.name)
        if last is not None and not last.phase.ended:
            raise RequestRefused(
                f"{last.name} is {last.phase}: give another name, or stop it first: dl2 stop {last.name}"
            )
        record = self._records.add(read, folder, self._clock.now(), **holding.submitted(read))
        self._clock.wake()
        return record.name

    def stop(self, name: str) -> None:
        """See `LiveCluster.stop`."""
        self._change(self._active(name), {"stop_asked": True})

    def hold(self, name: str) -> None:
        """See `LiveCluster.hold`."""
        record = self._staying(name)
        self._change(record, holding.hold(record, self._ask(record)))

    def release(self, name: str) -> None:
        """See `LiveCluster.release`."""
        record = self._staying(name)
        self._change(record, holding.release(record))

    def scale(self, name: str, workers: int, servers: int) -> Grant:
        """See `LiveCluster.scale`."""
        record = self._staying(name)
        others = holding.held_claims([other for other in self._records.active() if other.number != record.number])
        grant = holding.scale(record, workers, servers, self._nodes, others)
        self._change(record, {"wanted_workers": grant.workers, "wanted_servers": grant.servers})
        return grant

    def jobs(self) -> Sequence[JobStatus]:
        """See `LiveCluster.jobs`: those with processes as their coordinators say now."""
        last = {record.name: record for record in self._records.all()}
        claims = holding.held_claims(self._records.active())
        return [self._status(record, claims) for record in sorted(last.values(), key=lambda record: record.number)]

    def _status(self, record: JobRecord, claims: Sequence[TaskDemand]) -> JobStatus:
        heard, note = self._hear(record), views.why_waits(record, self._nodes, claims) or self._owners_note(record)
        log_file = self._runtime.log(record.name, record.number, record.runs)
        if isinstance(heard, LauncherEnding):
            return views.status_of(record, None, log_file, "it is over, and its processes end")
        return views.status_of(record, heard, log_file, note)

    def _owners_note(self, record: JobRecord) -> str:
        """What a held job would not follow; of other jobs the decisions tell it."""
        return self._actions.notes.get(record.number, "") if record.left_alone else ""

    def load(self) -> ClusterLoad:
        """See `LiveCluster.load`."""
        active = self._records.active()
        reports = {record.name: report for record in active if (report := self._ask(record)) is not None}
        tasks = {name: report.tasks for name, report in reports.items()}
        usage = self._runtime.usage([task for members in tasks.values() for task in members])
        return load_of(placed(active, self._nodes, self._rule), tasks, usage, self._runtime.isolation)

    def close(self) -> None:
        """Let the slot that runs end now, as the last. Jobs go on. Safe in a signal handler."""
        self._closing = True
        self._clock.wake()

    def _active(self, name: str) -> JobRecord:
        last = self._records.last(name)
        if last is None:
            names = ", ".join(record.name for record in self._records.active()) or "none"
            raise NoSuchJob(f"no job {name}; those that have not ended: {names}")
        if last.phase.ended:
            raise RequestRefused(f"{name} has ended: it is {last.phase}")
        return last

    def _staying(self, name: str) -> JobRecord:
        record = self._active(name)
        if record.stop_asked:
            raise RequestRefused(f"{name} is being stopped")
        return record

    def _change(self, record: JobRecord, changes: Changes) -> None:
        self._records.change(record.number, **changes)
        self._clock.wake()

    # ---- the loop, from one thread ---------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """See `Cluster.done`: it has been closed."""
        return self._closing

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`. What held jobs take is not in it, and neither are they."""
        self._actions.notes = {}
        self._tend()
        self._observe()
        self._began_slot = self._clock.now()
        active = self._records.active()
        self._before = [record for record in active if _is_decided(record) and record.number not in self._over]
        self._granted = {}
        nodes = place(self._nodes, holding.held_claims(active), self._rule).left()
        states = tuple(views.state_of(record, self._records.began) for record in self._before)
        self._slot = self._records.slot
        return Snapshot(self._slot, self._slot_seconds, nodes, states, self._speeds)

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`. Jobs that shrink go first, so that what they leave is free for the others."""
        self._records.next_slot()  # first: a slot that a kill cuts short keeps its number and its decisions
        self._granted = {record.number: allocation.of(record.name) for record in self._before}
        active = self._records.active()  # as they are now: a job may have been held, or stopped, since the snapshot
        grants = [(record, self._granted[record.number]) for record in active if self._may_grant(record)]
        grants += [(record, _own(record)) for record in active if self._is_owned(record)]
        for record, grant in sorted(grants, key=lambda each: _growth(*each)):
            if not record.left_alone:
                self._records.change(record.number, wanted_workers=grant.workers, wanted_servers=grant.servers)
            self._actions.give(record, self._reports.get(record.number), grant)

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`. It ends early where nothing runs (any more) while a job waits."""
        end = self._began_slot + self._slot_seconds
        while not self._closing and (left := end - self._clock.now()) > 0:
            self._clock.wait(left)
            self._tend()
            if self._idles():
                break
        self._observe()
        return self._measure()

    def _may_grant(self, record: JobRecord) -> bool:
        return record.number in self._granted and _is_decided(record)

    def _is_owned(self, record: JobRecord) -> bool:
        """Whether its owner decides about it."""
        return record.left_alone and _goes_on(record) and record.number not in self._over

    # ---- what has happened -----------------------------------------------------------------------------------------

    def _find_again(self) -> None:
        """Jobs of an earlier cluster: told again what they may not have heard, and their ends noticed."""
        for record in self._records.active():
            if record.process is None and record.phase.has_processes:
                self._records.change(record.number, phase=JobPhase.WAITING)  # it was never begun
            elif record.process is not None and self._runtime.is_alive(record.process):
                self._runtime.watch(record.process)
                self._actions.resume(record)

    def _tend(self) -> None:
        """Notice launchers that have ended, end jobs as asked, and give held jobs what their owners want."""
        self._actions.tend()
        for record in self._records.active():
            if record.process is not None and not self._runtime.is_alive(record.process):
                path = self._runtime.log(record.name, record.number, record.runs)
                ending = self._runtime.ending(record.name, record.process, path)
                record = self._records.change(record.number, **decide.ended(record, ending, self._clock.now()))
                log.info("%s: %s %s", record.name, record.phase, record.reason)
            if record.stop_asked and record.phase is JobPhase.WAITING:
                ended = self._clock.now()
                self._records.change(record.number, phase=JobPhase.STOPPED, reason="as asked", ended=ended)
            elif record.stop_asked and not record.phase.ended and record.phase is not JobPhase.STOPPING:
                self._actions.end(record, JobPhase.STOPPING, "as asked")
        self._tend_held()
        self._runtime.tend([shape_of(record) for record in self._records.active()])

    def _tend_held(self) -> None:
        """Held jobs do not wait for the next slot, but those do that grow into what others still have."""
        active = self._records.active()
        for record in active:
            wanted = _own(record)
            if not self._is_owned(record) or (record.workers, record.servers) == (wanted.workers, wanted.servers):
                continue
            if _growth(record, wanted) <= 0 or not placed(active, self._nodes, self._rule).over:
                self._actions.give(record, self._ask(record), wanted)

    def _idles(self) -> bool:
        decided = [record for record in self._records.active() if not record.left_alone]
        return bool(decided) and not any(record.phase.has_processes for record in decided)

    def _observe(self) -> None:
        """Ask every coordinator."""
        self._reports, self._over = {}, {}
        for record in self._records.active():
            match self._hear(record):
                case JobReport() as report:
                    self._reports[record.number] = report
                    other = (report.workers, report.servers) != (record.workers, record.servers)
                    since = self._since(record) if other or record.since is None else record.since
                    back = self._why_back(record) if decide.has_gone_back(record, report) else ""
                    self._records.change(record.number, since=since, **decide.reported(record, report, back))
                case LauncherEnding() as ending if decide.ends(record, ending):
                    self._over[record.number] = ending

    def _hear(self, record: JobRecord) -> JobReport | LauncherEnding | None:
        """What its coordinator says; how it ends, where it is over and its launcher still runs; None: nothing."""
        if record.process is None:
            return None
        try:
            return self._runtime.report(record.name, record.process)
        except Over as over:
            return over.ending
        except (Unreachable, Declined):
            return None

    def _ask(self, record: JobRecord) -> JobReport | None:
        heard = self._hear(record)
        return heard if isinstance(heard, JobReport) else None

    def _since(self, record: JobRecord) -> float | None:
        try:
            return self._runtime.since(record.name)
        except (Unreachable, Declined):
            return None

    def _why_back(self, record: JobRecord) -> str:
        try:
            return self._runtime.why_back(record.name)
        except (Unreachable, Declined):
            return ""

    def _measure(self) -> SlotOutcome:
        now = {record.number: self._as_ended(record) for record in self._records.all()}
        began = self._records.began
        outcomes = []
        for before in self._before:
            grant, note = self._granted.get(before.number, NOTHING), self._actions.notes.get(before.number, "")
            outcome = views.outcome_of(before, now[before.number], grant, note, began)
            if outcome.workers and outcome.servers:
                self._records.change(before.number, slots_run=before.slots_run + 1)
            outcomes.append(outcome)
        told = [record for record in self._records.active() if record.number in self._reports]
        speeds = map(views.speed_of, told)  # of held jobs too: they tell about their types
        self._speeds = tuple(speed for speed in speeds if speed is not None)
        return SlotOutcome(self._slot, outcomes, self._speeds, self._began_slot - began, self._clock.now() - began)

    def _as_ended(self, record: JobRecord) -> JobRecord:
        """A job that is over has ended, though its launcher has not: no later slot's outcome would tell it."""
        ending = self._over.get(record.number)
        return record if ending is None else replace(record, **decide.ended(record, ending, self._clock.now()))


def _check_working_folder(document: ElasticJob, folder: Path) -> None:
    """Refuse a document whose workers shall run where there is no folder."""
    found = working_folder(document, folder)
    if document.spec.workers.container.working_dir and not os.path.isdir(found):
        raise BadInput(f"{document.metadata.name}: workingDir: there is no folder {found}: make it, or give another")


def _is_decided(record: JobRecord) -> bool:
    """Whether the policy decides about it."""
    return not record.left_alone and _goes_on(record)


def _goes_on(record: JobRecord) -> bool:
    return not record.phase.ended and record.phase is not JobPhase.STOPPING


def _own(record: JobRecord) -> Grant:
    """What the owner of a job that the policy leaves alone wants it to have."""
    return NOTHING if record.suspended else Grant(record.wanted_workers, record.wanted_servers)


def _growth(record: JobRecord, grant: Grant) -> int:
    return grant.workers + grant.servers - record.workers - record.servers
