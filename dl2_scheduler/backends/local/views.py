"""This module shows records of jobs as policies, the loop and operators see them. It is pure."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from dl2_scheduler.backends.local import decide, holding
from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.places.placing import TaskDemand, fit, place
from dl2_scheduler.backends.local.runtime import SERVER, WORKER, JobReport
from dl2_scheduler.backends.slot_samples import PlacedJob
from dl2_scheduler.cluster.desk import JobStatus, LiveJobPhase
from dl2_scheduler.cluster.document.template import SLOTS
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, Trained
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES, Job, Node
from dl2_scheduler.cluster.snapshot import Grant, JobState, SpeedReport


def arrival_of(record: JobRecord, began: float) -> float:
    """Return the seconds from the cluster's beginning to the job's submission."""
    return max(0.0, record.submitted - began)


def job_of(record: JobRecord, began: float) -> Job:
    """Return the job as submitted, with what it has told of its data.

    Args:
        record: the record of the job.
        began: unix seconds: when the cluster began.
    """
    return record.document.job(arrival_of(record, began), record.samples_per_epoch or UNKNOWN_SAMPLES)


def state_of(record: JobRecord, began: float) -> JobState:
    """Return the job's state for a policy."""
    job = job_of(record, began)
    starting = record.phase is LiveJobPhase.STARTING
    return JobState(job, record.epochs_done, record.slots_run, record.workers, record.servers, starting)


def speed_of(record: JobRecord, epochs_before: float | None = None) -> SpeedReport | None:
    """Return the speed that the job measured; None: it did not.

    Args:
        record: the record of the job.
        epochs_before: that it had done at the snapshot before; None: not known.
    """
    if not (record.samples_per_second > 0 and record.has_all_roles):
        return None
    told = record.servers, record.workers, record.samples_per_second
    return SpeedReport(record.name, record.document.model, *told, stands(record, epochs_before))


def stands(record: JobRecord, epochs_before: float | None) -> bool:
    """Return whether a job has got no further than it was; one with static data never tells how far it is."""
    return record.samples_per_epoch > 0 and record.epochs_done == epochs_before


def placed_jobs(records: Sequence[JobRecord], heard: Collection[int]) -> list[PlacedJob]:
    """Return the jobs that have tasks, with where these are.

    Args:
        records: of all jobs that have not ended.
        heard: numbers of those that have just told how they are, and got further in the slot.
    """
    found = []
    for record in records:
        whole = tuple(map(len, record.places)) == (record.workers, record.servers)
        tells = record.number in heard and record.phase is LiveJobPhase.RUNNING and whole
        speed = record.samples_per_second if tells else 0.0
        if record.phase.has_processes:
            found.append(PlacedJob(record.number, record.document.model, *record.places, speed))
    return found


def outcome_of(before: JobRecord, now: JobRecord, grant: Grant, note: str, began: float) -> JobOutcome:
    """Return what became of a job in a slot.

    Args:
        before: at the slot's start.
        now: at its end.
        grant: for the slot.
        note: what went wrong with the grant; "": nothing.
        began: unix seconds: when the cluster began.
    """
    trained = Trained.between(before.epochs_done, now.epochs_done, before.most_epochs)
    workers, servers = now.workers, now.servers
    if _never_trained(before, now):
        workers, servers = 0, 0
    elif now.phase.ended:  # nobody can ask what it had last
        workers, servers = before.workers or grant.workers, before.servers or grant.servers
    return JobOutcome(
        now.name,
        workers,
        servers,
        trained.epochs,
        None if now.ended is None else now.ended - began,
        "; ".join(filter(None, (note or _news(before, now), trained.words))),
        None if now.since is None else now.since - began,
        trained.again,
        trained.lost,
    )


def _never_trained(before: JobRecord, now: JobRecord) -> bool:
    """Return whether a job has failed, or was stopped, before anybody heard that it trained.

    What it was granted is then not what it had.
    """
    return now.phase in (LiveJobPhase.FAILED, LiveJobPhase.STOPPED) and not before.has_all_roles


def _news(before: JobRecord, now: JobRecord) -> str:
    if _never_trained(before, now):
        return f"{now.phase} before it told of any training: {now.reason}"
    return f"{now.phase}: {now.reason}" if now.reason and now.reason != before.reason else ""


def why_waits(record: JobRecord, nodes: Sequence[Node], held: Sequence[TaskDemand]) -> str:
    """Return why a job has no processes; "": it has, or only the policy knows.

    Args:
        record: the record of the job.
        nodes: with their whole capacity.
        held: what held jobs take, this one too if it is.
    """
    if record.phase is not LiveJobPhase.WAITING:
        return ""
    if record.suspended:
        return f"suspended when it was submitted: dl2 release {record.name} lets it begin"
    spec = record.document.spec
    least = holding.demands_of(
        record.document, record.wanted_workers or spec.workers.min, record.wanted_servers or spec.servers.min
    )
    if not fit(nodes, least):
        tasks = " and ".join(
            f"{claim.count} {claim.role}s of {claim.demand[SLOTS]:g} slots" for claim in least if claim.count
        )
        return f"it needs {tasks}, for which the nodes are too small: dl2 serve with more --slots"
    if record.held and not record.wanted_workers:
        return f"held without tasks: dl2 scale {record.name} gives it some"
    others = [claim for claim in held if claim.job != record.name]
    if record.name in place(nodes, [*others, *least], NodeRule.SPREAD).over:
        return "held jobs take the room that it needs"
    return "held: it begins with the next slot" if record.held else ""


def status_of(record: JobRecord, report: JobReport | None, log: Path, waits: str) -> JobStatus:
    """Return the job as operators see it.

    Args:
        record: the record of the job.
        report: what its coordinator says now; None: as last measured.
        log: file of its output, once it has begun.
        waits: why it waits, or is not as its owner wants; "": it is, or only the policy knows.
    """
    if report is not None and not record.phase.ended:
        record = replace(record, **decide.reported(record, report))
        waits = waits or _who_is_late(record, report)
    spec = record.document.spec
    return JobStatus(
        name=record.name,
        model=record.document.model,
        phase=record.phase,
        reason="; ".join(filter(None, (record.reason, waits))),
        workers=record.workers,
        servers=record.servers,
        min_workers=spec.workers.min,
        min_servers=spec.servers.min,
        max_workers=spec.workers.max,
        max_servers=spec.servers.max,
        held=record.held,
        epochs_done=record.epochs_done,
        epochs=spec.epochs or 0.0,
        samples_per_second=record.samples_per_second,
        submitted=record.submitted,
        ended=record.ended,
        log=log if record.runs else None,
    )


def _who_is_late(record: JobRecord, report: JobReport) -> str:
    """Return for which tasks a job waits that is being started; "": for none, or its coordinator says what for."""
    if record.phase is not LiveJobPhase.STARTING or report.reason:
        return ""
    joined = Counter(task.role for task in report.tasks)
    wanted = {WORKER: report.wanted_workers, SERVER: report.wanted_servers}
    late = [f"{count - joined[role]} of {count} {role}s" for role, count in wanted.items() if joined[role] < count]
    return f"waits for {' and '.join(late)} to join: dl2 logs {record.name}" if late else ""
