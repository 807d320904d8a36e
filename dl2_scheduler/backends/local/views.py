"""Records of jobs as policies, the loop and operators see them: pure."""

from dataclasses import replace
from pathlib import Path

from dl2_scheduler.backends.local import decide
from dl2_scheduler.backends.local.records import Record
from dl2_scheduler.backends.local.runtime import Report
from dl2_scheduler.cluster.document import UNKNOWN_SAMPLES
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.live import JobStatus
from dl2_scheduler.cluster.policy import JobOutcome
from dl2_scheduler.cluster.snapshot import Grant, JobState, SpeedReport


def job_of(record: Record, began: float) -> Job:
    """As submitted, with what it has told of its data.

    Args:
        record: of the job.
        began: unix seconds: when the cluster began.
    """
    arrival = max(0.0, record.submitted - began)
    return record.document.job(arrival, record.samples_per_epoch or UNKNOWN_SAMPLES)


def state_of(record: Record, began: float) -> JobState:
    """For a policy."""
    job = job_of(record, began)
    return JobState(job, record.epochs_done, record.slots_run, record.workers, record.servers)


def speed_of(record: Record, began: float) -> SpeedReport | None:
    """As the job measured it; None: it did not."""
    if not (record.samples_per_second > 0 and record.workers and record.servers):
        return None
    model = job_of(record, began).model
    return SpeedReport(record.name, model, record.servers, record.workers, record.samples_per_second)


def outcome_of(before: Record, now: Record, grant: Grant, note: str, began: float) -> JobOutcome:
    """What became of a job in a slot.

    Args:
        before: at the slot's start.
        now: at its end.
        grant: for the slot.
        note: what went wrong with the grant; "": nothing.
        began: unix seconds: when the cluster began.
    """
    workers, servers = now.workers, now.servers
    if now.phase.ended:  # nobody can ask what it had last
        workers, servers = before.workers or grant.workers, before.servers or grant.servers
    return JobOutcome(
        now.name,
        workers,
        servers,
        now.epochs_done - before.epochs_done,
        None if now.ended is None else now.ended - began,
        note or (f"{now.phase}: {now.reason}" if now.reason and now.reason != before.reason else ""),
    )


def status_of(record: Record, report: Report | None, log: Path) -> JobStatus:
    """For operators.

    Args:
        record: of the job.
        report: what its coordinator says now; None: as last measured.
        log: file of its output, once it has begun.
    """
    if report is not None and not record.phase.ended:
        record = replace(record, **decide.reported(record, report))
    job = job_of(record, record.submitted)
    return JobStatus(
        name=record.name,
        model=job.model,
        phase=record.phase,
        reason=record.reason,
        workers=record.workers,
        servers=record.servers,
        max_workers=job.max_workers,
        max_servers=job.max_servers,
        epochs_done=record.epochs_done,
        epochs=job.epochs,
        samples_per_second=record.samples_per_second,
        submitted=record.submitted,
        ended=record.ended,
        log=log if record.runs else None,
    )
