"""This module answers people who ask about jobs of this machine, or want something of them."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from dl2_scheduler.backends.clock import Clock
from dl2_scheduler.backends.local import holding, views
from dl2_scheduler.backends.local.actions import working_folder
from dl2_scheduler.backends.local.coordinators import Coordinators
from dl2_scheduler.backends.local.job_records import Changes, JobRecord, JobRecords
from dl2_scheduler.backends.local.places.loads import load_of, placed
from dl2_scheduler.backends.local.places.placing import TaskDemand
from dl2_scheduler.backends.local.runtime import JobReport, JobRuntime, LauncherEnding
from dl2_scheduler.backends.local.storage_looks import StorageLooks
from dl2_scheduler.cluster.desk import ClusterLoad, JobStatus
from dl2_scheduler.cluster.document.job_document import ElasticJob, read_document
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused, NoSuchJob
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import Grant


class LocalDesk:
    """A `LocalDesk` takes people's requests for the jobs of a `LocalCluster`; see `JobDesk`.

    It writes down what is wanted and wakes the loop, which does it.

    Args:
        nodes: virtual.
        records: the records of the jobs.
        runtime: runs them.
        clock: woken when something is wanted.
        rule: the rule by which tasks of held jobs find their node.
        notes: returns what went wrong with jobs' grants in this slot, by the number of the submission.
        slot_seconds: length of a slot.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        records: JobRecords,
        runtime: JobRuntime,
        clock: Clock,
        rule: NodeRule,
        notes: Callable[[], Mapping[int, str]],
        slot_seconds: float,
    ) -> None:
        self._nodes = nodes
        self._records = records
        self._runtime = runtime
        self._clock = clock
        self._rule = rule
        self._notes = notes
        self._slot_seconds = slot_seconds
        self._coordinators = Coordinators(runtime)
        self._looks = StorageLooks()
        self._submitting = threading.Lock()  # of two that come at once with one name, one is refused

    def submit(self, document: str, folder: Path) -> str:
        """See `JobDesk.submit`."""
        read = self._checked(document, folder)  # with no lock: it looks at folders, and the file system may hang
        with self._submitting:
            self._check_name(read.metadata.name)
            record = self._records.add(read, folder, self._clock.now(), **holding.submitted(read))
        self._clock.wake()
        return record.name

    def check(self, document: str, folder: Path) -> str:
        """See `JobDesk.check`."""
        return self._checked(document, folder).metadata.name

    def _checked(self, document: str, folder: Path) -> ElasticJob:
        read = read_document(document)
        holding.check_submitted(read, self._nodes)
        self._check_working_folder(read, folder)
        self._check_name(read.metadata.name)
        return read

    def _check_working_folder(self, document: ElasticJob, folder: Path) -> None:
        """Refuse a document whose workers shall run where there is no folder, or none that answers."""
        if not document.spec.workers.container.working_dir:
            return
        found, name = working_folder(document, folder), document.metadata.name
        try:
            is_there = self._looks.ask(str(found), partial(os.path.isdir, found))
        except TimeoutError:
            raise BadInput(f"{name}: workingDir: {found} does not answer: submit it again when it does") from None
        except OSError as error:
            raise BadInput(f"{name}: workingDir: {found} cannot be looked at now: {error.strerror}") from error
        if not is_there:
            raise BadInput(f"{name}: workingDir: there is no folder {found}: make it, or give another")

    def _check_name(self, name: str) -> None:
        last = self._records.last(name)
        if last is not None and not last.phase.ended:
            raise ClusterRefused(f"{name} is {last.phase}: give another name, or stop it first: dl2 stop {name}")

    def stop(self, name: str) -> None:
        """See `JobDesk.stop`."""
        self._change(self._active(name), {"stop_asked": True})

    def hold(self, name: str) -> None:
        """See `JobDesk.hold`."""
        record = self._staying(name)
        self._change(record, holding.hold(record, self._coordinators.report(record)))

    def release(self, name: str) -> None:
        """See `JobDesk.release`."""
        record = self._staying(name)
        self._change(record, holding.release(record))

    def scale(self, name: str, workers: int, servers: int) -> Grant:
        """See `JobDesk.scale`."""
        record = self._staying(name)
        others = holding.held_demands([other for other in self._records.active() if other.number != record.number])
        grant = holding.scale(record, workers, servers, self._nodes, others)
        self._change(record, {"wanted_workers": grant.workers, "wanted_servers": grant.servers})
        return grant

    def jobs(self) -> Sequence[JobStatus]:
        """See `JobDesk.jobs`: jobs with processes are as their coordinators say now."""
        last = {record.name: record for record in self._records.all()}
        held = holding.held_demands(self._records.active())
        records = sorted(last.values(), key=lambda record: record.number)
        heard = self._coordinators.hear_all(records)
        return [self._status(record, said, held) for record, said in zip(records, heard, strict=True)]

    def load(self) -> ClusterLoad:
        """See `JobDesk.load`."""
        active = self._records.active()
        heard = zip(active, self._coordinators.hear_all(active), strict=True)
        tasks = {record.name: said.tasks for record, said in heard if isinstance(said, JobReport)}
        usage = self._runtime.usage([task for members in tasks.values() for task in members])
        load = load_of(placed(active, self._nodes, self._rule), tasks, usage, self._runtime.isolation)
        return replace(load, slot_seconds=self._slot_seconds)

    def _status(
        self, record: JobRecord, heard: JobReport | LauncherEnding | None, held: Sequence[TaskDemand]
    ) -> JobStatus:
        note = views.why_waits(record, self._nodes, held) or self._owners_note(record)
        log_file = self._runtime.log(record.name, record.number, record.runs)
        if isinstance(heard, LauncherEnding):
            heard, note = None, "it is over, and its processes end"
        status = views.status_of(record, heard, log_file, note)
        return replace(status, arrival=views.arrival_of(record, self._records.began))

    def _owners_note(self, record: JobRecord) -> str:
        """Return what a held job would not follow; of other jobs the decisions tell it."""
        return self._notes().get(record.number, "") if record.left_alone else ""

    def _active(self, name: str) -> JobRecord:
        last = self._records.last(name)
        if last is None:
            names = ", ".join(record.name for record in self._records.active()) or "none"
            raise NoSuchJob(f"no job {name}; those that have not ended: {names}")
        if last.phase.ended:
            raise ClusterRefused(f"{name} has ended: it is {last.phase}")
        return last

    def _staying(self, name: str) -> JobRecord:
        record = self._active(name)
        if record.stop_asked:
            raise ClusterRefused(f"{name} is being stopped")
        return record

    def _change(self, record: JobRecord, changes: Changes) -> None:
        self._records.change(record.number, **changes)
        self._clock.wake()
