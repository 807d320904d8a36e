"""This module decides what becomes of a job, and what has to be done about it. It is pure."""

from dataclasses import dataclass

from dl2_scheduler.backends.local.job_records import Changes, JobRecord
from dl2_scheduler.backends.local.runtime import JobReport, LauncherEnding
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.snapshot import Grant
from elastic_ps.core.crash_loop import has_worked
from elastic_ps.core.errors import EXIT_LATER

SUSPENDED = "suspended: it was granted nothing"


@dataclass(frozen=True)
class StartJob:
    """`StartJob` says to start the job with these counts."""

    workers: int
    servers: int


@dataclass(frozen=True)
class ScaleJob:
    """`ScaleJob` says to ask for these counts."""

    workers: int
    servers: int


@dataclass(frozen=True)
class SuspendJob:
    """`SuspendJob` says to save the job and end it, to go on later.

    Attributes:
        save: there is something to save.
    """

    save: bool


@dataclass(frozen=True)
class LeaveJob:
    """`LeaveJob` says to do nothing.

    Attributes:
        note: why, where something was wanted; "": nothing was.
    """

    note: str = ""


Action = StartJob | ScaleJob | SuspendJob | LeaveJob


def difference(record: JobRecord, report: JobReport | None, grant: Grant, silence: str) -> Action:
    """Return what takes a job from what it has to what it is granted.

    Args:
        record: the record of the job, neither ended nor about to be.
        report: what its coordinator just said; None: nobody answers.
        grant: for the slot.
        silence: why nobody answers, for people.
    """
    counts = grant.workers, grant.servers
    match record.phase:
        case LiveJobPhase.WAITING:
            return StartJob(*counts) if grant.runs else LeaveJob()
        case LiveJobPhase.SUSPENDING:
            return LeaveJob("it is still being suspended" if grant.runs else "")
        case LiveJobPhase.STARTING if not grant.runs and (report is None or not report.has_trained):
            return SuspendJob(save=False)
        case LiveJobPhase.STARTING if report is None and counts == (record.wanted_workers, record.wanted_servers):
            return LeaveJob()  # it was started with them
        case _ if report is None:
            return LeaveJob(silence)
        case _ if not grant.runs:
            return SuspendJob(save=report.has_trained)
        case _ if counts == (report.wanted_workers, report.wanted_servers):
            return LeaveJob()
        case _:
            return ScaleJob(*counts)


def saved(record: JobRecord, problem: str) -> Changes:
    """Return what becomes of a job that was to be saved and then suspended.

    Args:
        record: the record of the job.
        problem: why it could not be saved; "": it is.
    """
    if record.phase is not LiveJobPhase.SUSPENDING:  # it has ended, or somebody stops it
        return {}
    return {"phase": LiveJobPhase.RUNNING, "reason": ""} if problem else {"saved": True}


def has_gone_back(record: JobRecord, report: JobReport) -> bool:
    """Return whether a job has gone back to a checkpoint since its last word.

    A coordinator that has just been started again does not know how far its workers are, nor how fast: it waits.
    """
    return report.trains and report.samples_per_second > 0 and report.epochs < record.epochs_done


def reported(record: JobRecord, report: JobReport, back: str = "") -> Changes:
    """Return what a coordinator's word changes in a job's record.

    Args:
        record: the record of the job.
        report: the word.
        back: why it went back to a checkpoint, where it has; "": its coordinator does not know.
    """
    epochs = report.epochs if has_gone_back(record, report) else max(record.epochs_done, report.epochs)
    most = max(record.most_epochs, record.epochs_done, epochs)
    why = (record.cut_off or back if epochs < record.epochs_done else record.back) if epochs < most else ""
    changes: dict[str, object] = {
        "workers": report.workers,
        "servers": report.servers,
        "epochs_done": epochs,
        "most_epochs": most,
        "back": why,
        "cut_off": "" if report.trains and report.samples_per_second > 0 else record.cut_off,
        "samples_per_epoch": report.samples_per_epoch or record.samples_per_epoch,
        "samples_per_second": report.samples_per_second if report.trains else 0.0,
    }
    if record.phase in (LiveJobPhase.STARTING, LiveJobPhase.RUNNING):
        changes["phase"] = LiveJobPhase.RUNNING if report.trains else LiveJobPhase.STARTING
        changes["reason"] = _done_again(epochs, most, why) if report.trains else report.reason
    return changes


def _done_again(epochs: float, most: float, back: str) -> str:
    if epochs >= most:
        return ""
    return f"epochs up to {most:.1f} are done again: back at its last checkpoint{f', as {back}' if back else ''}"


def ends(record: JobRecord, ending: LauncherEnding) -> bool:
    """Return whether a job that is over ends for good, and not to go on later."""
    phase: LiveJobPhase = ended(record, ending, 0.0)["phase"]
    return phase.ended


def ended(record: JobRecord, ending: LauncherEnding, now: float) -> Changes:
    """Return what the end of its launcher makes of a job.

    Args:
        record: the record of the job, which had processes.
        ending: what the launcher has left behind.
        now: unix seconds.
    """
    gone = {"process": None, "workers": 0, "servers": 0, "since": None}
    changes: dict[str, object] = {**gone, "samples_per_second": 0.0}
    over = {**changes, "ended": ending.at or now}
    if record.phase is LiveJobPhase.STOPPING:
        return {**over, "phase": LiveJobPhase.STOPPED, "reason": "as asked"}
    if record.phase is LiveJobPhase.SUSPENDING and record.saved:
        return {**changes, "phase": LiveJobPhase.WAITING, "reason": SUSPENDED, "cut_off": record.cut_off or SUSPENDED}
    if ending.is_stopped:  # by `elasticctl stop`, of which nobody has told this scheduler
        return {**over, "phase": LiveJobPhase.STOPPED, "reason": ending.reason}
    if ending.status == 0:
        epochs = max(record.document.spec.epochs or 0.0, record.epochs_done)  # its owner may have expected fewer
        return {**over, "phase": LiveJobPhase.FINISHED, "reason": ending.reason, "epochs_done": epochs}
    if ending.status == EXIT_LATER:  # it never began, for a reason that may pass
        reason = f"{ending.reason}: it waits, and is tried again"
        saved = record.cut_off == SUSPENDED
        return {**changes, "phase": LiveJobPhase.WAITING, "reason": reason, "saved": saved}
    if ending.is_by_signal:  # nobody has asked for its end here
        return {**changes, **_lost(record, ending, now)}
    return {**over, "phase": LiveJobPhase.FAILED, "reason": ending.reason}


def _lost(record: JobRecord, ending: LauncherEnding, now: float) -> Changes:
    """Return what the loss of its launcher makes of a job: it goes on, unless too many were lost in a row."""
    how = "lost:" if ending.status is None else "ended"
    lost, limit = f"its launcher was {how} {ending.reason}", record.document.spec.retry_limit
    is_healthy = has_worked(record.last_loss, record.epochs_at_loss, now, record.most_epochs)
    losses = 1 if is_healthy else record.losses + 1
    if losses > limit:
        used_up = f"; retryLimit {limit} has been used up" if limit else ""
        return {"phase": LiveJobPhase.FAILED, "reason": f"{lost}{used_up}", "ended": ending.at or now}
    counted = {"losses": losses, "last_loss": now, "epochs_at_loss": record.most_epochs}
    return {**counted, "phase": LiveJobPhase.WAITING, "reason": lost, "cut_off": lost}
