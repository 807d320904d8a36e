"""This module is a Kubernetes cluster whose ElasticJobs a policy scales."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dl2_scheduler.backends.clock import Clock
from dl2_scheduler.backends.kube import views
from dl2_scheduler.backends.kube.apiserver.object_reading import job_of
from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, PodInfo
from dl2_scheduler.backends.kube.apiserver.paced_writes import NotLeading, PacedWriter
from dl2_scheduler.backends.kube.capacity import TasksAsMade
from dl2_scheduler.backends.kube.placed_jobs import placed_jobs
from dl2_scheduler.backends.kube.placement.view import View
from dl2_scheduler.backends.kube.readonly_view import Onlookers
from dl2_scheduler.backends.kube.scheduler_memory import SchedulerMemory
from dl2_scheduler.backends.slot_samples import SlotSamples
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, Snapshot
from k8s.foundation.api_server import ApiError, ApiServer, Conflict, NotFound, job_path

log = logging.getLogger(__name__)

_THREADS = 8
_ATTEMPTS = 4
_MOST_SLOTS = 1 << 52  # who may change a job may write any number there: a later one could not be counted on


class KubernetesCluster:
    """A `KubernetesCluster` writes what was decided about ElasticJobs into them; see `Cluster`.

    Args:
        view: of the cluster.
        api: is read again where a write was refused.
        writer: writes what was decided.
        memory: of slots.
        slot_seconds: length of a slot.
        clock: measures slots; woken where a job has changed.

    Attributes:
        policy: tells the name of the one that decides.
        why_placed: tells why a job's tasks that were bound since it was asked last are where they are; "": none were.
        desk: shows people the jobs.
    """

    def __init__(
        self,
        view: View,
        api: ApiServer,
        writer: PacedWriter,
        memory: SchedulerMemory,
        slot_seconds: float,
        clock: Clock,
    ):
        self.desk = Onlookers(view, memory.began)
        self._view = view
        self.policy: Callable[[], str] = str
        self.why_placed: Callable[[tuple[str, str]], str] = lambda _: ""
        self._api = api
        self._writer = writer
        self._memory = memory
        self._slot_seconds = slot_seconds
        self._clock = clock

        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="allocate")
        self._closing = False
        self._began_slot = clock.now()
        self._slot = memory.slot
        self._before: list[JobInfo] = []
        self._epochs: dict[str, float] = {}  # at the slot's start, of all jobs, by uid
        self._nodes: list[str] = []  # of the snapshot
        self._samples = SlotSamples()
        self._tasks = TasksAsMade()
        self._granted: dict[str, Grant] = {}
        self._written: dict[str, JobInfo] = {}  # by uid, as written in this slot: the watch may be behind
        self._failed: dict[str, str] = {}
        self._notes: dict[str, str] = {}  # by uid, of the slot before

    def close(self) -> None:
        """Let the slot that runs end now, as the last. Jobs go on. Safe in a signal handler."""
        self._closing = True
        self._clock.wake()

    @property
    def done(self) -> bool:
        """See `Cluster.done`: it has been closed."""
        return self._closing

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        self._began_slot = self._clock.now()
        jobs = self._view.jobs()
        epochs_before, self._epochs = self._epochs, {job.uid: job.status.epoch for job in jobs}
        self._before = views.scaled([self._latest(job) for job in jobs])
        told = [job.allotment.slot for job in self._before if job.allotment]  # where the folder has been lost
        self._slot = max([self._memory.slot, *(slot + 1 for slot in told if slot < _MOST_SLOTS)])
        self._granted, self._failed = {}, {}
        pods = self._view.pods()
        seen = views.snapshot_of(
            self._slot,
            self._slot_seconds,
            self._view.nodes(),
            pods,
            self._tasks.see(self._before, pods),
            self._memory.began,
            self._memory.slots_run,
            epochs_before,
        )
        self._nodes = [node.name for node in seen.nodes]
        return seen

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`. Jobs that shrink are written first, so that their room is free the sooner."""
        self._memory.next_slot(self._slot)  # first: a slot that is cut short keeps its number
        self._written = {}
        grants = [(job, allocation.of(job.id)) for job in self._before]
        self._granted = {job.uid: grant for job, grant in grants}
        for shrinks in (True, False):
            some = [each for each in grants if (_more(*each) < 0) is shrinks]
            list(self._pool.map(self._give, some))

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`. It ends early where nothing runs (any more) while a job waits."""
        end = self._began_slot + self._slot_seconds
        while not self._closing and self._began_slot <= (now := self._clock.now()) < end:  # a clock may be set back
            self._clock.wait(end - now)
            if self._idles():
                break
        return self._measure()

    # ---- what is done ----------------------------------------------------------------------------------------------

    def _give(self, each: tuple[JobInfo, Grant]) -> None:
        """Write a job's counts, where they differ; what somebody else wrote meanwhile is read first."""
        job, grant = each
        try:
            for _ in range(_ATTEMPTS):
                if not job.scaled:  # it is held, suspended or about to go since
                    return
                change = self._change(job, grant)
                if change is None:
                    return
                try:
                    self._written[job.uid] = views.changed(job, change, self._writer.allocate(job, change))
                    return
                except Conflict:
                    job = job_of(self._api.get(job_path(job.namespace, job.name)))
                    if job.uid != each[0].uid:
                        return
            self._failed[job.uid] = "its counts could not be written: others write it all the time"
        except NotFound:
            return
        except NotLeading as error:
            self._failed[each[0].uid] = str(error)
            self.close()
        except ApiError as error:
            self._failed[each[0].uid] = f"its counts could not be written: {error}"
            log.warning("%s: %s", job.id, self._failed[each[0].uid])
        except Exception as error:  # one job's fault is no other's
            self._failed[each[0].uid] = f"its counts could not be written: {error!r}"
            log.exception("%s: its counts could not be written", each[0].id)

    def _change(self, job: JobInfo, grant: Grant) -> dict[str, Any] | None:
        note = self._notes.get(job.uid, "")
        return views.change_of(job, grant, grant.reason, self._slot, self._clock.now(), self.policy(), note)

    # ---- what has happened -----------------------------------------------------------------------------------------

    def _latest(self, job: JobInfo) -> JobInfo:
        """Return a job as the watch shows it, but not older than what was written."""
        written = self._written.get(job.uid)
        return written if written is not None and int(written.version) > int(job.version) else job

    def _idles(self) -> bool:
        """Return whether nothing runs while a job waits that is new in this slot, or since others have ended."""
        jobs = [job for job in self._view.jobs() if views.is_scaled(job)]  # asked after each event: not sorted
        if not jobs or any(job.status.workers or self._granted.get(job.uid, NOTHING).workers for job in jobs):
            return False
        known, now = {job.uid for job in self._before}, {job.uid for job in jobs}
        return bool(now - known) or bool({uid for uid, grant in self._granted.items() if grant.workers} - now)

    def _measure(self) -> SlotOutcome:
        now, there = {job.uid: job for job in self._view.jobs()}, self._view.pods()
        pods: dict[tuple[str, str], list[PodInfo]] = {}
        for pod in there:
            pods.setdefault(pod.key, []).append(pod)
        at, outcomes, ran, notes = self._clock.now(), [], {}, {}
        for before in self._before:
            grant, after = self._granted.get(before.uid, NOTHING), now.get(before.uid)
            note = self._failed.get(before.uid) or views.note_of(before, after, grant, pods.get(before.key, ()))
            note = "; ".join(filter(None, (self.why_placed(before.key), note)))
            told = self._memory.most_epochs.get(before.uid, 0.0)
            outcome = views.outcome_of(before, after, grant, note, told, self._memory.began, at)
            outcomes.append(outcome)
            notes[before.uid] = outcome.note
            if outcome.finished is None:
                ran[before.uid] = self._memory.slots_run.get(before.uid, 0) + int(
                    outcome.workers > 0 and (outcome.servers > 0 or not before.has_servers)
                )
        waiting = {
            uid: count for uid, count in self._memory.slots_run.items() if uid in now and uid not in self._granted
        }
        runs = {**waiting, **ran}
        known = self._memory.most_epochs
        most = {uid: max(known.get(uid, 0.0), views.epochs_done(now[uid])) for uid in runs if uid in now}
        self._memory.ran(runs, most)
        self._notes = notes
        speeds = tuple(views.speeds(views.scaled(list(now.values())), self._epochs))
        placed = self._samples.at_end_of_slot(placed_jobs(list(now.values()), there, self._epochs), self._nodes)
        began = self._memory.began
        return SlotOutcome(self._slot, outcomes, speeds, self._began_slot - began, at - began, placed)


def _more(job: JobInfo, grant: Grant) -> int:
    had = job.allotment
    return grant.workers + grant.servers - (had.workers + had.servers if had else 0)
