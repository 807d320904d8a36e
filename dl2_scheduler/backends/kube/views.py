"""This module shows objects of the API server as policies and people see them, and writes decisions. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dl2_scheduler.backends.kube.apiserver.objects import DECISIONS, Allotment, JobInfo, NodeInfo, PodInfo
from dl2_scheduler.backends.kube.capacity import Demands, capacity
from dl2_scheduler.backends.kube.placement.free_resources import Requests
from dl2_scheduler.cluster.desk import JobStatus, LiveJobPhase
from dl2_scheduler.cluster.interfaces import JobOutcome, Trained
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES, Job
from dl2_scheduler.cluster.ranges import MOST_AMOUNT, MOST_EPOCHS
from dl2_scheduler.cluster.snapshot import Grant, JobState, Snapshot, SpeedReport
from protos import cluster_pb2 as pb

MOST_DECISIONS = 10
"""That a job keeps of itself."""

_PHASES: Mapping[str, LiveJobPhase] = {
    "": LiveJobPhase.WAITING,
    "Waiting": LiveJobPhase.WAITING,
    "Suspended": LiveJobPhase.WAITING,
    "Starting": LiveJobPhase.STARTING,
    "Running": LiveJobPhase.RUNNING,
    "Suspending": LiveJobPhase.SUSPENDING,
    "Completed": LiveJobPhase.FINISHED,
    "Failed": LiveJobPhase.FAILED,
}


def scaled(jobs: Sequence[JobInfo]) -> list[JobInfo]:
    """Return the jobs that a policy decides about, by creation."""
    return sorted(filter(is_scaled, jobs), key=lambda job: (job.created, job.key))


def is_scaled(job: JobInfo) -> bool:
    """Return whether a policy decides about a job."""
    return job.scaled and bool(job.epochs)


def snapshot_of(
    slot: int,
    slot_seconds: float,
    nodes: Sequence[NodeInfo],
    pods: Sequence[PodInfo],
    jobs: Sequence[JobInfo],
    began: float,
    slots_run: Mapping[str, int],
    epochs_before: Mapping[str, float],
) -> Snapshot:
    """Return the cluster as a policy sees it at the start of a slot.

    Args:
        slot: its number.
        slot_seconds: its length.
        nodes: all.
        pods: all that have not ended.
        jobs: of `scaled`, as `TasksAsMade` have them.
        began: unix seconds: when the cluster began.
        slots_run: of each job, by its uid.
        epochs_before: see `speeds`.
    """
    seen = capacity(nodes, pods, jobs)
    states = tuple(
        JobState(
            _job(job, demands, began),
            epochs_done(job),
            slots_run.get(job.uid, 0),
            job.status.workers,
            job.status.servers,
            job.status.phase == "Starting",
            job.saves,
        )
        for job, demands in zip(jobs, seen.demands, strict=True)
    )
    return Snapshot(slot, slot_seconds, seen.nodes, states, tuple(speeds(jobs, epochs_before)))


def arrival_of(job: JobInfo, began: float) -> float:
    """Return the seconds from the cluster's beginning to the job's creation."""
    return max(0.0, job.created - began)


def _job(job: JobInfo, demands: Demands, began: float) -> Job:
    found = Job(
        id=job.id,
        arrival=arrival_of(job, began),
        model=job.model,
        epochs=_epochs(job),
        samples_per_epoch=job.status.samples_per_epoch or UNKNOWN_SAMPLES,
        worker=_bounded(demands.worker),
        server=_bounded(demands.server),
        max_workers=job.workers.max,
        max_servers=job.servers.max,
        min_workers=job.workers.min,
        min_servers=job.servers.min,
    )
    return found if job.has_servers else found.without_servers()


def _bounded(demand: Requests) -> Requests:
    """Return a demand as histories hold it: of one job that asks for more the whole slot could not be read."""
    return {name: min(amount, MOST_AMOUNT) for name, amount in demand.items()}


def epochs_done(job: JobInfo) -> float:
    """Return the epochs trained so far; a job that completed has done all, whatever it reported last."""
    return max(job.status.epoch, _epochs(job)) if job.status.phase == "Completed" else job.status.epoch


def _epochs(job: JobInfo) -> float:
    """Return the epochs that a job asks for, as histories hold them: earlier definitions of jobs had no most."""
    return min(job.epochs or 0.0, MOST_EPOCHS)


def speeds(jobs: Sequence[JobInfo], epochs_before: Mapping[str, float]) -> list[SpeedReport]:
    """Return the speeds that running jobs report.

    Args:
        jobs: of `scaled`.
        epochs_before: that each job had done at the last snapshot, by its uid.
    """
    return [
        _speed(job, job.status.epoch == epochs_before.get(job.uid))
        for job in jobs
        if job.status.samples_per_second > 0 and job.status.workers and not job.status.over
        if job.status.servers or not job.has_servers
    ]


def _speed(job: JobInfo, as_before: bool) -> SpeedReport:
    told = job.status
    stands = told.samples_per_epoch > 0 and as_before  # static data have no epochs
    return SpeedReport(job.id, job.model, told.servers, told.workers, told.samples_per_second, stands)


def change_of(
    job: JobInfo, grant: Grant, reason: str, slot: int, at: float, policy: str, note: str
) -> dict[str, Any] | None:
    """Return the patch that gives a job what was decided; None: it has it.

    A reason that differs from the one before in its numbers only is not written again.

    Args:
        job: as it is.
        grant: for the slot.
        reason: for people.
        slot: its number.
        at: unix seconds.
        policy: by its name.
        note: what became of the decision before, where that was other than decided.
    """
    given = job.allotment
    if given is not None and (given.workers, given.servers) == (grant.workers, grant.servers):
        if shape(given.reason) == shape(reason):
            return None
    elif given is None and not reason and not grant.workers:
        return None
    entry = {
        "slot": slot,
        "at": round(at, 3),
        "policy": policy,
        "workers_before": job.status.workers,
        "servers_before": job.status.servers,
        "workers": grant.workers,
        "servers": grant.servers,
        "reason": reason,
        "epochs_done": round(epochs_done(job), 4),
    }
    entries = [*_close(decisions_of(job), job, note), entry][-MOST_DECISIONS:]
    allocation = {"workers": grant.workers, "servers": grant.servers, "reason": reason, "slot": slot}
    annotations = {DECISIONS: json.dumps(entries, separators=(",", ":"))}
    return {"metadata": {"annotations": annotations}, "spec": {"allocation": allocation}}


def changed(job: JobInfo, change: Mapping[str, Any], version: str) -> JobInfo:
    """Return a job as it is after a change of `change_of`: nothing else differs, as the write is refused otherwise.

    Args:
        job: before it.
        change: written.
        version: since then.
    """
    given = change["spec"]["allocation"]
    return replace(
        job,
        version=version,
        allotment=Allotment(given["workers"], given["servers"], given["reason"], given["slot"]),
        decisions=change["metadata"]["annotations"][DECISIONS],
    )


def _close(entries: list[dict[str, Any]], job: JobInfo, note: str) -> list[dict[str, Any]]:
    """Add to the last entry what became of it, now that another follows."""
    if not entries:
        return []
    last = entries[-1]
    trained = max(0.0, epochs_done(job) - last.get("epochs_done", 0.0))
    happened = {
        "workers": job.status.workers,
        "servers": job.status.servers,
        "epochs": round(trained, 4),
        "note": note,
    }
    return [*entries[:-1], {**last, "happened": happened}]


def decisions_of(job: JobInfo) -> list[dict[str, Any]]:
    """Return the last decisions about a job, oldest first, each until the next, with the fields of `cluster.proto`."""
    try:
        found = json.loads(job.decisions or "[]")
    except (ValueError, RecursionError):
        return []  # somebody else wrote there
    return found if isinstance(found, list) and all(map(_is_decision, found)) else []


def _is_decision(found: object) -> bool:
    """Return whether what was read is a decision as it is written here, or by a release that says more."""
    if not isinstance(found, dict) or not isinstance(found.get("epochs_done", 0.0), int | float):
        return False
    try:
        pb.Decision(**{name: value for name, value in found.items() if name in pb.Decision.DESCRIPTOR.fields_by_name})
    except (ValueError, TypeError):
        return False
    return True


def decisions_until_now(job: JobInfo) -> list[dict[str, Any]]:
    """See `decisions_of`; with what has become of the last one so far."""
    entries = decisions_of(job)
    if not entries or not job.status.phase:
        return entries
    closed = _close(entries, job, "" if job.status.over else "so far")
    if job.status.over and not _never_trained(job):  # it had until then what it was given
        closed[-1]["happened"] |= {name: closed[-1][name] for name in ("workers", "servers")}
    return closed


def outcome_of(
    before: JobInfo, now: JobInfo | None, grant: Grant, note: str, most: float, began: float, at: float
) -> JobOutcome:
    """Return what became of a job in a slot.

    Args:
        before: at the slot's start.
        now: at its end; None: it has been deleted.
        grant: for the slot.
        note: why it was other than decided, for people; "": nobody knows of anything.
        most: epochs, the highest that it had told of before.
        began: unix seconds: when the cluster began.
        at: unix seconds, now.
    """
    done = epochs_done(before)
    trained = Trained.between(done, done if now is None else epochs_done(now), most)
    if now is None or now.deleting:
        had = before.status.workers or grant.workers, before.status.servers or grant.servers
        note = note or "stopped: it was deleted"
        return JobOutcome(before.id, *had, trained.epochs, at - began, note, None, trained.again, trained.lost)
    workers, servers = now.status.workers, now.status.servers
    if now.status.over and not _never_trained(now):  # nobody can ask what it had last
        workers, servers = before.status.workers or grant.workers, before.status.servers or grant.servers
    return JobOutcome(
        before.id,
        workers,
        servers,
        trained.epochs,
        None if not now.status.over else (now.status.ended or at) - began,
        "; ".join(filter(None, (note, trained.words))),
        None if now.status.since is None else now.status.since - began,
        trained.again,
        trained.lost,
    )


def _never_trained(job: JobInfo) -> bool:
    """Return whether a job has failed before it trained: what it was granted is not what it had."""
    return job.status.phase == "Failed" and not job.status.trained


def note_of(before: JobInfo, now: JobInfo | None, grant: Grant, pods: Sequence[PodInfo]) -> str:
    """Return why a job was other than decided, for people; "": it was as decided, or nobody knows.

    Args:
        before: at the slot's start.
        now: at its end; None: it has been deleted.
        grant: for the slot.
        pods: of the job.
    """
    if now is None or now.deleting:
        return ""
    told = now.status
    if told.over:
        when = " before it trained" if _never_trained(now) else ""
        return f"{told.phase}{when}: {told.reason}" if told.reason else ""
    if (told.workers, told.servers) == (grant.workers, grant.servers):
        return ""
    if told.plan and told.plan != before.status.plan:
        return told.plan
    unbound = [pod for pod in pods if not pod.node and pod.waits]
    if unbound:
        return f"{unbound[0].name}: {unbound[0].waits}"
    return f"{told.phase}: {told.reason}" if told.reason else told.phase


def status_of(job: JobInfo, name: str, pods: Sequence[PodInfo]) -> JobStatus:
    """Return a job's status as people see it.

    Args:
        job: as it is.
        name: that it goes by.
        pods: of the job.
    """
    return JobStatus(
        name=name,
        model=job.model,
        phase=phase_of(job),
        reason=reason_of(job, pods),
        workers=job.status.workers,
        servers=job.status.servers,
        min_workers=job.workers.min,
        min_servers=job.servers.min,
        max_workers=job.workers.max,
        max_servers=job.servers.max,
        held=not job.by_scheduler,
        epochs_done=epochs_done(job),
        epochs=job.epochs or 0.0,
        samples_per_second=job.status.samples_per_second,
        submitted=job.created,
        ended=job.status.ended,
        log=None,
    )


def phase_of(job: JobInfo) -> LiveJobPhase:
    """Return a job's phase in the words that all backends share."""
    return LiveJobPhase.STOPPING if job.deleting else _PHASES.get(job.status.phase, LiveJobPhase.WAITING)


def reason_of(job: JobInfo, pods: Sequence[PodInfo]) -> str:
    """Return why a job is in its phase, for people: what pods wait for, what was decided, or what the operator says."""
    if job.deleting or job.status.phase == "Running":
        return job.status.reason
    unbound = [pod for pod in pods if not pod.node and pod.waits]
    if unbound:
        return unbound[0].waits
    if job.status.phase == "Suspended" and job.suspend:
        return "suspended: spec.suspend is set"
    if not job.status.over and job.by_scheduler and (job.allotment is None or not job.allotment.workers):
        return job.allotment.reason if job.allotment else "the scheduler has not decided about it yet"
    return job.status.reason


def shape(reason: str) -> str:
    """Return the form of a reason: numbers that change do not make it another."""
    return re.sub(r"[0-9]+([.][0-9]+)?", "#", reason)
