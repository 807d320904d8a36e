"""How a job ends, is suspended, is deleted: a checkpoint if there can be one, a stop, then its pods go. Pure."""

from collections.abc import Callable

from k8s.elastic_operator.job.actions import DeleteJob, DeletePod, Save, SetFinalizer, Stop
from k8s.elastic_operator.job.model import CAUSE, Counts, timestamp, unix
from k8s.elastic_operator.job.reconciliation import Turn
from k8s.elastic_operator.job.report import Report
from k8s.elastic_operator.job.status import COMPLETED, ENDED, FAILED, RUNNING, SUSPENDED, SUSPENDING, WAITING

SILENCE = 10.0
"""Seconds after which the end does not wait any longer for a coordinator that does not answer."""
LAST_SECONDS = 60.0
"""That processes of a job that is over have to end by themselves."""
CLEAR_SECONDS = 6.0
"""That pods of a job which goes have to end by themselves."""
RETRY_SECONDS = 30.0
_SAVED = "Saved"


def finish(turn: Turn, report: Report) -> None:
    """The coordinator says that the job is over."""
    if report.phase == "failed":
        fail(turn, report.reason)
        return
    turn.note(phase=COMPLETED, reason=report.reason, completion_time=timestamp(turn.now), plan="")
    turn.tell("Completed", True, "Finished", report.reason)
    turn.tell("Running", False, "Finished")
    turn.event("Completed", report.reason or "the job has finished")
    turn.look_again(0.0)


def fail(turn: Turn, why: str) -> None:
    """The job has failed."""
    turn.note(phase=FAILED, reason=why, completion_time=timestamp(turn.now), plan="")
    turn.tell("Failed", True, "Failed", why)
    turn.tell("Running", False, "Failed")
    turn.event("Failed", why, warning=True)
    turn.look_again(0.0)


def rest(turn: Turn) -> None:
    """A job that is over: its pods end, those that have ended stay for their logs; in time the object goes."""
    turn.note(plan="", samples_per_second=0.0)
    over = turn.now - unix(turn.status.completion_time)
    nodes = [pod for pod in turn.nodes() if pod.alive]
    patient = over < LAST_SECONDS and turn.report is not None and turn.report.ended
    if nodes and patient:
        turn.look_again(LAST_SECONDS - over)
    else:
        turn.delete(pod for pod in turn.seen.pods if pod.alive or pod.lost)
    if not nodes:
        turn.note(workers=0, servers=0)
    if not turn.alive and turn.desired.finalizer:
        turn.act(SetFinalizer(False))
    if turn.desired.ttl is not None:
        if over >= turn.desired.ttl:
            turn.act(DeleteJob())
        else:
            turn.look_again(turn.desired.ttl - over)


def suspend(turn: Turn, revive: Callable[[Turn], None], serve: Callable[[Turn, Counts], None]) -> None:
    """A job that shall have nothing.

    Args:
        turn: of the job.
        revive: brings its coordinator back.
        serve: keeps it as it is.
    """
    report, status = turn.report, turn.status
    if not turn.alive:
        _suspended(turn)
    elif not status.trained or turn.ended_by_us:
        turn.note(phase=SUSPENDING, reason="its pods end")
        turn.delete(turn.seen.pods)
    elif turn.coordinator is None or not turn.coordinator.alive:
        revive(turn)
    elif not turn.desired.checkpoint:
        serve(turn, report.wanted if report is not None else Counts(1, 1))
        turn.tell("Suspended", False, "NoCheckpoint", "it goes on: without spec.checkpoint.url it could not come back")
    elif report is None:
        turn.note(reason="it waits for its coordinator, to save the job")
    else:
        _save_and_stop(turn)


def _suspended(turn: Turn) -> None:
    if turn.status.term == 0:
        turn.note(phase=WAITING, reason=_why_waiting(turn))
        return
    if turn.status.phase != SUSPENDED:
        turn.event("Suspended", turn.status.checkpoint or "before it had trained anything")
    turn.note(phase=SUSPENDED, reason=_why_waiting(turn), workers=0, servers=0, samples_per_second=0.0, plan="")
    turn.tell("Suspended", True, "Suspended", turn.status.checkpoint)
    turn.tell("Running", False, "Suspended")


def _why_waiting(turn: Turn) -> str:
    if turn.desired.suspended:
        return "spec.suspend is true"
    told = turn.desired.spec.get("allocation", {}).get("reason", "")
    return str(told) or "the scheduler has granted it nothing yet"


def _save_and_stop(turn: Turn) -> None:
    saving = turn.seen.saving
    turn.note(phase=SUSPENDING, reason="a checkpoint is being written")
    if saving is None:
        turn.tell("Suspended", False, "Saving")
        turn.act(Save())
    elif saving.error:
        turn.note(phase=RUNNING, reason=f"it goes on, as it could not be saved: {saving.error}")
        turn.tell("Suspended", False, "NotSaved", saving.error)
        turn.look_again(RETRY_SECONDS)
    elif saving.url:
        turn.note(checkpoint=saving.url, reason="it stops")
        turn.tell("Suspended", False, _SAVED, saving.url)
        turn.act(Stop(f"{CAUSE}: suspended"))


def is_stopping(turn: Turn) -> bool:
    """Whether its processes end, or have ended, because it was saved to be suspended."""
    told = turn.status.conditions.get("Suspended")
    return turn.status.phase == SUSPENDING and told is not None and told.reason == _SAVED


def leave(turn: Turn) -> None:
    """The object is to be deleted: what can be saved is saved, then it goes with all that belongs to it."""
    if not turn.desired.finalizer:
        return
    running = turn.report is not None and not turn.report.ended and turn.status.phase not in ENDED
    saving = turn.seen.saving
    if all(pod.deleting for pod in turn.alive):
        _clear(turn)
    elif running and turn.status.trained and turn.desired.checkpoint and (saving is None or saving.under_way):
        turn.note(reason="deleted: a checkpoint is being written")
        turn.act(*([Save()] if saving is None else []))
    elif running:
        if saving is not None and saving.url and saving.url != turn.status.checkpoint:
            turn.note(checkpoint=saving.url)
            turn.event("Saved", saving.url)
        turn.act(Stop(f"{CAUSE}: deleted"))
    elif turn.report is None and turn.coordinator is not None and turn.coordinator.alive and turn.seen.silent < SILENCE:
        turn.look_again(SILENCE - turn.seen.silent)
    else:
        turn.delete(turn.alive)


def _clear(turn: Turn) -> None:
    """All pods of a job that goes are ending. Those that take long have nobody to hand over to: nobody waits for them.

    In a foreground deletion they are deleted before the job, their coordinator among them: they would ask for it, to be
    drained, until their grace is over.
    """
    late = [pod for pod in turn.alive if turn.now >= pod.deleted + CLEAR_SECONDS]
    turn.act(*(DeletePod(pod.name, at_once=True) for pod in late))
    if len(late) == len(turn.alive):
        turn.act(SetFinalizer(False))
    else:
        turn.note(reason="its pods end")
        turn.look_again(CLEAR_SECONDS)
