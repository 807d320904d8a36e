"""This module does what is decided about jobs: it starts, scales, suspends and ends them."""

import logging
import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dl2_scheduler.backends.clock import Clock
from dl2_scheduler.backends.local import decide
from dl2_scheduler.backends.local.decide import LeaveJob, ScaleJob, StartJob, SuspendJob
from dl2_scheduler.backends.local.job_records import JobRecord, JobRecords
from dl2_scheduler.backends.local.runtime import (
    SERVER,
    WORKER,
    Declined,
    JobReport,
    JobRuntime,
    LauncherProcess,
    LaunchOrder,
    TaskShape,
    Unreachable,
)
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import ElasticJob
from dl2_scheduler.cluster.snapshot import Grant

log = logging.getLogger(__name__)


class Actions:
    """`Actions` carry out what is decided about the jobs of one cluster, in its loop's thread.

    Args:
        records: the records of its jobs; what shall become of a job is written down before it is told.
        runtime: runs them.
        clock: woken when a job has been saved.

    Attributes:
        notes: what went wrong with jobs' grants in this slot, by the number of the submission.
    """

    def __init__(self, records: JobRecords, runtime: JobRuntime, clock: Clock):
        self.notes: dict[int, str] = {}
        self._records = records
        self._runtime = runtime
        self._clock = clock
        self._saves: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._kept_waiting: set[int] = set()  # records whose last start came to nothing for now

    def give(self, record: JobRecord, report: JobReport | None, grant: Grant, silence: str) -> None:
        """Take a job to its counts by the difference to what it has; what it will not follow is noted.

        Args:
            record: the record of the job, neither ended nor about to be.
            report: what its coordinator just said; None: nobody answers.
            grant: the grant that it is to have.
            silence: why nobody answers, for people.
        """
        try:
            match decide.difference(record, report, grant, silence):
                case StartJob(workers, servers):
                    self._start(record, workers, servers)
                case ScaleJob(workers, servers):
                    self._runtime.scale(record.name, workers, servers)
                    log.info("%s: scaled to %s", record.name, record.document.words(workers, servers))
                case SuspendJob(save):
                    self._suspend(record, save)
                case LeaveJob(note) if note:
                    self._note(record, note)
        except (Unreachable, Declined) as error:
            self._note(record, str(error))

    def end(self, record: JobRecord, phase: LiveJobPhase, reason: str) -> None:
        """End a job's processes.

        Args:
            record: the record of the job.
            phase: the phase that it is in from now on.
            reason: why, for people.
        """
        self._records.change(record.number, phase=phase, reason=reason)
        if record.process is not None:
            self._runtime.stop(record.name, record.process)
        log.info("%s: %s", record.name, phase)

    def cannot_start(self, record: JobRecord) -> bool:
        """Return whether a job waits for what its last start lacked: till that is there it takes no room from others.

        Args:
            record: the record of the job; its reason is kept true.
        """
        if record.number not in self._kept_waiting or record.phase is not LiveJobPhase.WAITING:
            return False
        spec = record.document.spec
        why = self._runtime.why_not(_next_start(record, spec.workers.min, spec.servers.min))
        if why:
            self._records.change(record.number, reason=why)
        return bool(why)

    def resume(self, record: JobRecord) -> None:
        """Tell a job of an earlier cluster what it may not have heard: its end, or to save itself before."""
        if record.process is None:
            return
        if record.phase is LiveJobPhase.SUSPENDING and not record.saved:
            self._save(record)
        elif record.phase in (LiveJobPhase.SUSPENDING, LiveJobPhase.STOPPING):
            self._runtime.stop(record.name, record.process)

    def tend(self) -> None:
        """End the jobs that have been saved for it; those that could not be saved go on."""
        if not self._kept_waiting and self._saves.empty():
            return
        active = {record.number: record for record in self._records.active()}
        self._kept_waiting &= active.keys()  # people stop jobs that wait
        while not self._saves.empty():
            number, problem = self._saves.get()
            record = active.get(number)
            if record is None or not (changes := decide.saved(record, problem)):
                continue
            record = self._records.change(number, **changes)
            if problem:
                self._note(record, f"it could not be saved, so it is not suspended: {problem}")
            elif record.process is not None:
                self._runtime.stop(record.name, record.process)

    def _suspend(self, record: JobRecord, save: bool) -> None:
        if not save:
            self.end(self._records.change(record.number, saved=True), LiveJobPhase.SUSPENDING, decide.SUSPENDED)
            return
        self._records.change(record.number, phase=LiveJobPhase.SUSPENDING, saved=False, reason="it is being saved")
        log.info("%s: %s", record.name, LiveJobPhase.SUSPENDING)
        self._save(record)

    def _save(self, record: JobRecord) -> None:
        def done(problem: str) -> None:
            self._saves.put((record.number, problem))
            self._clock.wake()

        self._runtime.save(record.name, done)

    def _start(self, record: JobRecord, workers: int, servers: int) -> None:
        order = _next_start(record, workers, servers)
        self._records.change(record.number, phase=LiveJobPhase.STARTING, reason="", runs=order.run, saved=False)
        self._kept_waiting.discard(record.number)
        try:
            self._runtime.start(order, self._writer(record.number))
        except Unreachable as error:
            self._kept_waiting.add(record.number)
            before = {"phase": LiveJobPhase.WAITING, "runs": record.runs, "saved": record.saved}
            self._records.change(record.number, reason=str(error), **before)
            raise
        except Declined as error:
            ended = self._clock.now()
            self._records.change(record.number, phase=LiveJobPhase.FAILED, reason=str(error), process=None, ended=ended)
            raise
        log.info("%s: started with %s", record.name, record.document.words(workers, servers))

    def _writer(self, number: int) -> Callable[[LauncherProcess], None]:
        def write(process: LauncherProcess) -> None:
            self._records.change(number, process=process)

        return write

    def _note(self, record: JobRecord, note: str) -> None:
        self.notes[record.number] = note
        log.warning("%s: %s", record.name, note)


def _next_start(record: JobRecord, workers: int, servers: int) -> LaunchOrder:
    """Return what the launcher of a job that waits is to start; see `order_of`."""
    # what was cut off by a loss, and suspended before it trained again, is in no checkpoint of its suspension
    was_saved = record.saved and record.cut_off == decide.SUSPENDED and record.epochs_done > 0
    return replace(order_of(replace(record, runs=record.runs + 1), workers, servers), was_saved=was_saved)


def order_of(record: JobRecord, workers: int, servers: int) -> LaunchOrder:
    """Return what a job's launcher is to start.

    Args:
        record: the record of the job, with this start counted.
        workers: how many it starts with.
        servers: how many it starts with.
    """
    container = record.document.spec.workers.container
    saving = record.document.spec.checkpoint
    return LaunchOrder(
        shape=shape_of(record),
        submitted=record.submitted,
        run=record.runs,
        command=(*container.command, *container.args),
        folder=working_folder(record.document, record.folder),
        workers=workers,
        servers=servers,
        checkpoint_url=_absolute(saving.url, record.folder) if saving and saving.url else "",
        checkpoint_interval=saving.interval if saving else None,
        retry_limit=record.document.spec.retry_limit,
        block_replicas=record.document.spec.block_replicas,
        mode=record.document.spec.mode,
    )


def working_folder(document: ElasticJob, folder: Path) -> Path:
    """Return where a job's workers run, when its document was submitted from `folder`."""
    return folder / (document.spec.workers.container.working_dir or "")


def shape_of(record: JobRecord) -> TaskShape:
    """Return what a job's tasks are like."""
    spec = record.document.spec
    roles = {WORKER: spec.workers} if spec.all_reduces else {WORKER: spec.workers, SERVER: spec.servers}
    return TaskShape(
        record.name,
        record.number,
        slots={name: role.slots for name, role in roles.items()},
        environment={
            name: {variable.name: variable.value for variable in role.container.env} for name, role in roles.items()
        },
    )


def _absolute(url: str, folder: Path) -> str:
    """Return a URL as it is, and a path as one from where the job was submitted."""
    return url if "://" in url else str(folder / url)
