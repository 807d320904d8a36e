"""A cluster of virtual nodes whose jobs are processes of this machine."""

import logging
from collections.abc import Sequence
from pathlib import Path

from dl2_scheduler.backends.local import decide, views
from dl2_scheduler.backends.local.clock import Clock
from dl2_scheduler.backends.local.decide import Leave, Scale, Start, Suspend
from dl2_scheduler.backends.local.records import Record, Records
from dl2_scheduler.backends.local.runtime import Declined, JobRuntime, Order, Process, Report, Unreachable
from dl2_scheduler.cluster.document import read_document
from dl2_scheduler.cluster.errors import BadInput, Refused, UnknownJob
from dl2_scheduler.cluster.jobs import Node, check_fits
from dl2_scheduler.cluster.live import JobStatus, Phase
from dl2_scheduler.cluster.policy import Outcome
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot, SpeedReport

log = logging.getLogger(__name__)

_NOTHING = Grant(0, 0)


class LocalCluster:
    """See `LiveCluster`. Jobs that run when it is made, of an earlier one with the same records, go on.

    Args:
        nodes: virtual.
        slot_seconds: length of a slot.
        records: of its jobs.
        runtime: runs them.
        clock: measures slots.
    """

    def __init__(
        self, nodes: Sequence[Node], slot_seconds: float, records: Records, runtime: JobRuntime, clock: Clock
    ) -> None:
        self._nodes = tuple(nodes)
        self._slot_seconds = slot_seconds
        self._records = records
        self._runtime = runtime
        self._clock = clock
        self._closing = False
        self._began_slot = clock.now()
        self._slot = records.slot
        self._before: list[Record] = []
        self._reports: dict[int, Report] = {}
        self._speeds: tuple[SpeedReport, ...] = ()
        self._granted: dict[int, Grant] = {}
        self._notes: dict[int, str] = {}
        self._find_again()

    # ---- people, from any thread -----------------------------------------------------------------------------------

    def submit(self, document: str, folder: Path) -> str:
        """See `LiveCluster.submit`."""
        read = read_document(document)
        try:
            check_fits(read.job(0.0), self._nodes)
        except BadInput as error:
            raise BadInput(f"{read.metadata.name}: {error}") from error
        last = self._records.last(read.metadata.name)
        if last is not None and not last.phase.ended:
            raise Refused(f"{last.name} is {last.phase}: give another name, or stop it first: dl2 stop {last.name}")
        record = self._records.add(read, folder, self._clock.now())
        self._clock.wake()
        return record.name

    def stop(self, name: str) -> None:
        """See `LiveCluster.stop`."""
        last = self._records.last(name)
        if last is None:
            names = ", ".join(record.name for record in self._records.active()) or "none"
            raise UnknownJob(f"no job {name}; those that have not ended: {names}")
        if last.phase.ended:
            raise Refused(f"{name} has {last.phase} already" if last.phase is Phase.FINISHED else f"{name} has ended")
        self._records.change(last.number, stop_asked=True)
        self._clock.wake()

    def jobs(self) -> Sequence[JobStatus]:
        """See `LiveCluster.jobs`: those with processes as their coordinators say now."""
        last = {record.name: record for record in self._records.all()}
        return [
            views.status_of(record, self._ask(record), self._runtime.log(record.name, record.number, record.runs))
            for record in sorted(last.values(), key=lambda record: record.number)
        ]

    def close(self) -> None:
        """Let the slot that runs end now, as the last. Jobs go on. Safe in a signal handler."""
        self._closing = True
        self._clock.wake()

    # ---- the loop, from one thread ---------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """See `Cluster.done`: it has been closed."""
        return self._closing

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        self._tend()
        self._observe()
        self._began_slot = self._clock.now()
        self._before = [record for record in self._records.active() if record.phase is not Phase.STOPPING]
        self._granted, self._notes = {}, {}
        states = tuple(views.state_of(record, self._records.began) for record in self._before)
        self._slot = self._records.slot
        return Snapshot(self._slot, self._slot_seconds, self._nodes, states, self._speeds)

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`. Jobs that shrink go first, so that what they leave is free for the others."""
        self._records.next_slot()  # first: a slot that a kill cuts short keeps its number and its decisions
        grants = [(record, allocation.grants.get(record.name, _NOTHING)) for record in self._before]
        grants.sort(key=lambda each: each[1].workers + each[1].servers - each[0].workers - each[0].servers)
        for record, grant in grants:
            self._granted[record.number] = grant
            try:
                self._act(record, grant)
            except (Unreachable, Declined) as error:
                self._note(record, str(error))

    def finish_slot(self) -> Outcome:
        """See `Cluster.finish_slot`. It ends early where nothing runs (any more) while a job waits."""
        end = self._began_slot + self._slot_seconds
        while not self._closing and (left := end - self._clock.now()) > 0:
            self._clock.wait(left)
            self._tend()
            if self._idles():
                break
        self._observe()
        return self._measure()

    # ---- what is done ----------------------------------------------------------------------------------------------

    def _act(self, record: Record, grant: Grant) -> None:
        report = self._reports.get(record.number)
        match decide.difference(record, report, grant):
            case Start(workers, servers):
                self._start(record, workers, servers)
            case Scale(workers, servers):
                self._runtime.scale(record.name, workers, servers)
                log.info("%s: scaled to %d workers and %d servers", record.name, workers, servers)
            case Suspend(save):
                if save:
                    self._runtime.checkpoint(record.name)
                self._end(record, Phase.SUSPENDING, "suspended: it was granted nothing")
            case Leave(note) if note:
                self._note(record, note)

    def _start(self, record: Record, workers: int, servers: int) -> None:
        container = record.document.spec.workers.container
        saving = record.document.spec.checkpoint
        started = self._records.change(record.number, phase=Phase.STARTING, reason="", runs=record.runs + 1)
        order = Order(
            name=record.name,
            run=started.runs,
            submission=record.number,
            command=(*container.command, *container.args),
            folder=record.folder / (container.working_dir or ""),
            workers=workers,
            servers=servers,
            checkpoint_interval=saving.interval if saving else None,
        )

        def write(process: Process) -> None:
            self._records.change(record.number, process=process)

        try:
            self._runtime.start(order, write)
        except Declined as error:
            ended = self._clock.now()
            self._records.change(record.number, phase=Phase.FAILED, reason=str(error), process=None, ended=ended)
            raise
        log.info("%s: started with %d workers and %d servers", record.name, workers, servers)

    def _end(self, record: Record, phase: Phase, reason: str) -> None:
        """What shall become of a job is written down before it is told, so that a restart tells it again."""
        self._records.change(record.number, phase=phase, reason=reason)
        if record.process is not None:
            self._runtime.stop(record.name, record.process)
        log.info("%s: %s", record.name, phase)

    def _note(self, record: Record, note: str) -> None:
        self._notes[record.number] = note
        log.warning("%s: %s", record.name, note)

    # ---- what has happened -----------------------------------------------------------------------------------------

    def _find_again(self) -> None:
        """Jobs of an earlier cluster: told again what they may not have heard, and their ends noticed."""
        for record in self._records.active():
            if record.process is None and record.phase.has_processes:
                self._records.change(record.number, phase=Phase.WAITING)  # it was never begun
            elif record.process is not None and self._runtime.is_alive(record.process):
                self._runtime.watch(record.process)
                if record.phase in (Phase.SUSPENDING, Phase.STOPPING):
                    self._runtime.stop(record.name, record.process)

    def _tend(self) -> None:
        """Notice launchers that have ended, and end jobs as asked."""
        for record in self._records.active():
            if record.process is not None and not self._runtime.is_alive(record.process):
                path = self._runtime.log(record.name, record.number, record.runs)
                ending = self._runtime.ending(record.name, record.process, path)
                record = self._records.change(record.number, **decide.ended(record, ending, self._clock.now()))
                log.info("%s: %s %s", record.name, record.phase, record.reason)
            if record.stop_asked and record.phase is Phase.WAITING:
                ended = self._clock.now()
                self._records.change(record.number, phase=Phase.STOPPED, reason="as asked", ended=ended)
            elif record.stop_asked and not record.phase.ended and record.phase is not Phase.STOPPING:
                self._end(record, Phase.STOPPING, "as asked")

    def _idles(self) -> bool:
        active = self._records.active()
        return bool(active) and not any(record.phase.has_processes for record in active)

    def _observe(self) -> None:
        """Ask every coordinator."""
        self._reports = {}
        for record in self._records.active():
            if (report := self._ask(record)) is not None:
                self._reports[record.number] = report
                self._records.change(record.number, **decide.reported(record, report))

    def _ask(self, record: Record) -> Report | None:
        if record.process is None:
            return None
        try:
            return self._runtime.report(record.name)
        except (Unreachable, Declined):
            return None

    def _measure(self) -> Outcome:
        now = {record.number: record for record in self._records.all()}
        began = self._records.began
        outcomes = []
        for before in self._before:
            grant, note = self._granted.get(before.number, _NOTHING), self._notes.get(before.number, "")
            outcome = views.outcome_of(before, now[before.number], grant, note, began)
            if outcome.workers and outcome.servers:
                self._records.change(before.number, slots_run=before.slots_run + 1)
            outcomes.append(outcome)
        speeds = (views.speed_of(now[before.number], began) for before in self._before)
        self._speeds = tuple(speed for speed in speeds if speed is not None)
        return Outcome(self._slot, outcomes, self._speeds)
