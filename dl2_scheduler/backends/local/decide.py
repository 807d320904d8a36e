"""What becomes of a job, and what has to be done about it: pure."""

from dataclasses import dataclass

from dl2_scheduler.backends.local.records import Changes, Record
from dl2_scheduler.backends.local.runtime import Ending, Report
from dl2_scheduler.cluster.live import Phase
from dl2_scheduler.cluster.snapshot import Grant

SUSPENDED = "suspended: it was granted nothing"


@dataclass(frozen=True)
class Start:
    """Start the job with these counts."""

    workers: int
    servers: int


@dataclass(frozen=True)
class Scale:
    """Ask for these counts."""

    workers: int
    servers: int


@dataclass(frozen=True)
class Suspend:
    """Save the job and end it, to go on later.

    Attributes:
        save: there is something to save.
    """

    save: bool


@dataclass(frozen=True)
class Leave:
    """Do nothing.

    Attributes:
        note: why, where something was wanted; "": nothing was.
    """

    note: str = ""


Action = Start | Scale | Suspend | Leave


def difference(record: Record, report: Report | None, grant: Grant) -> Action:
    """From what a job has to what it is granted.

    Args:
        record: of the job, neither ended nor about to be.
        report: what its coordinator just said; None: nobody answers.
        grant: for the slot.
    """
    counts = grant.workers, grant.servers
    match record.phase:
        case Phase.WAITING:
            return Start(*counts) if all(counts) else Leave()
        case Phase.SUSPENDING:
            return Leave("it is still being suspended" if all(counts) else "")
        case Phase.STARTING if not all(counts) and (report is None or not report.has_trained):
            return Suspend(save=False)
        case Phase.STARTING if report is None and counts == (record.wanted_workers, record.wanted_servers):
            return Leave()  # it was started with them
        case _ if report is None:
            return Leave("its coordinator does not answer")
        case _ if not all(counts):
            return Suspend(save=report.has_trained)
        case _ if counts == (report.wanted_workers, report.wanted_servers):
            return Leave()
        case _:
            return Scale(*counts)


def saved(record: Record, problem: str) -> Changes:
    """What becomes of a job that was to be saved and then suspended.

    Args:
        record: of the job.
        problem: why it could not be saved; "": it is.
    """
    if record.phase is not Phase.SUSPENDING:  # it has ended, or somebody stops it
        return {}
    return {"phase": Phase.RUNNING, "reason": ""} if problem else {"saved": True}


def reported(record: Record, report: Report) -> Changes:
    """What a coordinator's word changes in a job's record."""
    changes: dict[str, object] = {
        "workers": report.workers,
        "servers": report.servers,
        "epochs_done": max(record.epochs_done, report.epochs),  # what is done again after a restore counts once
        "samples_per_epoch": report.samples_per_epoch or record.samples_per_epoch,
        "samples_per_second": report.samples_per_second if report.trains else 0.0,
    }
    if record.phase in (Phase.STARTING, Phase.RUNNING):
        changes["phase"] = Phase.RUNNING if report.trains else Phase.STARTING
        changes["reason"] = "" if report.trains else report.reason
    return changes


def ends(record: Record, ending: Ending) -> bool:
    """Whether a job that is over ends for good, and not to go on later."""
    phase: Phase = ended(record, ending, 0.0)["phase"]
    return phase.ended


def ended(record: Record, ending: Ending, now: float) -> Changes:
    """What the end of its launcher makes of a job.

    Args:
        record: of the job, which had processes.
        ending: what the launcher has left behind.
        now: unix seconds.
    """
    gone = {"process": None, "workers": 0, "servers": 0, "since": None}
    changes: dict[str, object] = {**gone, "samples_per_second": 0.0}
    over = {**changes, "ended": ending.at or now}
    if record.phase is Phase.STOPPING:
        return {**over, "phase": Phase.STOPPED, "reason": "as asked"}
    if record.phase is Phase.SUSPENDING and record.saved:
        return {**changes, "phase": Phase.WAITING, "reason": SUSPENDED}
    if ending.status == 0:
        epochs = record.document.spec.epochs or record.epochs_done
        return {**over, "phase": Phase.FINISHED, "reason": ending.reason, "epochs_done": epochs}
    if ending.status is not None:
        return {**over, "phase": Phase.FAILED, "reason": ending.reason}
    losses, limit = record.losses + 1, record.document.spec.retry_limit
    if losses > limit:
        used_up = f"; retryLimit {limit} has been used up" if limit else ""
        return {**over, "phase": Phase.FAILED, "reason": f"its launcher was lost: {ending.reason}{used_up}"}
    return {**changes, "losses": losses, "phase": Phase.WAITING, "reason": f"its launcher was lost: {ending.reason}"}
