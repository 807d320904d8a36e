"""This module ends, suspends and deletes a job: it is saved if it can be, then stopped, then its pods go. Pure."""

from collections.abc import Callable

from k8s.elastic_operator.job.actions import DeleteJob, DeletePod, SaveJob, SetFinalizer, StopJob
from k8s.elastic_operator.job.mirror import PROTECTED
from k8s.elastic_operator.job.model import CAUSE, Counts, timestamp, unix
from k8s.elastic_operator.job.reconciliation import JobDecisionDraft
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job.status import COMPLETED, ENDED, FAILED, RUNNING, SUSPENDED, SUSPENDING, WAITING

SILENCE = 10.0
"""Seconds after which the end does not wait any longer for a coordinator that does not answer."""
LAST_SECONDS = 60.0
"""That processes of a job that is over have to end by themselves."""
CLEAR_SECONDS = 6.0
"""That pods of a job which goes have to end by themselves."""
RETRY_SECONDS = 30.0
LOST = "Lost"
"""Of the condition Coordinated: the coordinator's pod was lost, and another one has not told of the job yet."""
_SAVED = "Saved"


def may_tell(draft: JobDecisionDraft) -> bool:
    """Return whether a coordinator that is there has said nothing yet, and is waited for."""
    there = draft.coordinator is not None and draft.coordinator.alive
    return draft.report is None and there and draft.seen.silent < SILENCE


def stand(draft: JobDecisionDraft, why: str) -> None:
    """Note that the job does not train: what was said of how it does holds no more.

    Args:
        draft: of the decision about the job.
        why: one word, of the condition Running.
    """
    draft.note(samples_per_second=0.0, plan="")
    draft.set_condition("Running", False, why)
    draft.drop_condition(PROTECTED)


def finish(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Note that the job is over, as the coordinator says."""
    if report.phase == "failed":
        fail(draft, report.reason)
        return
    draft.note(phase=COMPLETED, reason=report.reason, completion_time=timestamp(draft.now))
    draft.set_condition("Completed", True, "Finished", report.reason)
    stand(draft, "Finished")
    draft.write_event("Completed", report.reason or "the job has finished")
    draft.look_again(0.0)


def fail(draft: JobDecisionDraft, why: str) -> None:
    """Note that the job has failed."""
    draft.note(phase=FAILED, reason=why, completion_time=timestamp(draft.now))
    draft.set_condition("Failed", True, "Failed", why)
    stand(draft, "Failed")
    draft.write_event("Failed", why, warning=True)
    draft.look_again(0.0)


def rest(draft: JobDecisionDraft) -> None:
    """Let the pods of a job that is over end; those that have ended stay for their logs. In time the object goes."""
    stand(draft, "Finished" if draft.status.phase == COMPLETED else "Failed")
    over = draft.now - unix(draft.status.completion_time)
    nodes = [pod for pod in draft.nodes() if pod.alive]
    patient = over < LAST_SECONDS and draft.report is not None and draft.report.ended
    if nodes and patient:
        draft.look_again(LAST_SECONDS - over)
    else:
        draft.delete(pod for pod in draft.seen.pods if pod.alive or pod.lost or pod.lingers)
    if not nodes:
        draft.note(workers=0, servers=0)
    if not draft.alive and draft.desired.finalizer:
        draft.act(SetFinalizer(False))
    if draft.desired.ttl is not None:
        if over >= draft.desired.ttl:
            draft.act(DeleteJob())
        else:
            draft.look_again(draft.desired.ttl - over)


def suspend(
    draft: JobDecisionDraft,
    revive: Callable[[JobDecisionDraft], None],
    serve: Callable[[JobDecisionDraft, Counts], None],
) -> None:
    """Suspend a job, which shall have nothing.

    Args:
        draft: of the decision about the job.
        revive: brings its coordinator back.
        serve: keeps it as it is.
    """
    report, status = draft.report, draft.status
    if not draft.alive:
        _suspended(draft)
    elif not status.trained and may_tell(draft):  # it may have trained since the operator looked last
        draft.look_again(SILENCE - draft.seen.silent)
    elif not status.trained and _nodes_alone(draft):  # likewise; a new coordinator asks them
        revive(draft)
    elif not status.trained and _asks_nodes(draft):
        draft.note(reason="it waits for its coordinator, which asks its nodes whether there is anything to save")
    elif not status.trained or draft.ended_by_us:
        draft.note(phase=SUSPENDING, reason="its pods end")
        draft.delete(draft.seen.pods)
    elif draft.coordinator is None or not draft.coordinator.alive:
        revive(draft)
    elif not draft.desired.checkpoint:
        serve(draft, report.wanted if report is not None else draft.desired.whole(1, 1))
        why = "it goes on: without spec.checkpoint.url it could not come back"
        draft.set_condition("Suspended", False, "NoCheckpoint", why)
    elif report is None:
        draft.note(reason="it waits for its coordinator, to save the job")
    else:
        _save_and_stop(draft, report)


def _nodes_alone(draft: JobDecisionDraft) -> bool:
    """Return whether nodes run whose coordinator is gone."""
    there = draft.coordinator is not None and draft.coordinator.alive
    return not there and _nodes_run(draft)


def _asks_nodes(draft: JobDecisionDraft) -> bool:
    """Return whether the coordinator does not know yet what nodes know: it lost its journal, or is another one."""
    told, report = draft.status.conditions.get("Coordinated"), draft.report
    begins = report is None and told is not None and told.reason == LOST
    return _nodes_run(draft) and (begins or (report is not None and report.phase == "rebuilding"))


def _nodes_run(draft: JobDecisionDraft) -> bool:
    return any(node.staying and node.phase == "Running" for node in draft.nodes())


def _suspended(draft: JobDecisionDraft) -> None:
    if draft.status.term == 0:
        draft.note(phase=WAITING, reason=_why_waiting(draft))
        return
    draft.delete(pod for pod in draft.seen.pods if pod.lingers)
    if draft.status.phase != SUSPENDED:
        draft.write_event("Suspended", draft.status.checkpoint or "before it had trained anything")
    draft.note(phase=SUSPENDED, reason=_why_waiting(draft), workers=0, servers=0)
    draft.set_condition("Suspended", True, "Suspended", draft.status.checkpoint)
    stand(draft, "Suspended")


def _why_waiting(draft: JobDecisionDraft) -> str:
    if draft.desired.suspended:
        return "spec.suspend is true"
    told = draft.desired.spec.get("allocation", {}).get("reason", "")
    return str(told) or "the scheduler has granted it nothing yet"


def _save_and_stop(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    saving = draft.saving
    draft.note(phase=SUSPENDING, reason="a checkpoint is being written")
    if saving is None:
        draft.set_condition("Suspended", False, "Saving")
        draft.act(SaveJob(report.term))
    elif saving.error:
        draft.note(phase=RUNNING, reason=f"it goes on, as it could not be saved: {saving.error}")
        draft.set_condition("Suspended", False, "NotSaved", saving.error)
        draft.look_again(RETRY_SECONDS)
    elif saving.url:
        draft.note(checkpoint=saving.url, reason="it stops")
        draft.set_condition("Suspended", False, _SAVED, saving.url)
        draft.act(StopJob(f"{CAUSE}: suspended"))


def is_stopping(draft: JobDecisionDraft) -> bool:
    """Return whether the job's processes end, or have ended, because it was saved to be suspended."""
    told = draft.status.conditions.get("Suspended")
    return draft.status.phase == SUSPENDING and told is not None and told.reason == _SAVED


def leave(draft: JobDecisionDraft) -> None:
    """Let a job go whose object is to be deleted: what can be saved is saved, then all goes that belongs to it."""
    if not draft.desired.finalizer:
        return
    report, saving = draft.report, draft.saving
    running = report is not None and not report.ended and draft.status.phase not in ENDED
    if all(pod.deleting for pod in draft.alive):
        _clear(draft)
    elif running and draft.status.trained and draft.desired.checkpoint and (saving is None or saving.under_way):
        draft.note(reason="deleted: a checkpoint is being written")
        draft.act(*([SaveJob(report.term)] if saving is None and report is not None else []))
    elif running:
        if saving is not None and saving.url and saving.url != draft.status.checkpoint:
            draft.note(checkpoint=saving.url)
            draft.write_event("Saved", saving.url)
        draft.act(StopJob(f"{CAUSE}: deleted"))
    elif may_tell(draft):
        draft.look_again(SILENCE - draft.seen.silent)
    else:
        draft.delete(draft.alive)


def _clear(draft: JobDecisionDraft) -> None:
    """Delete the pods at once that take long to end: nobody is left that they could hand over to.

    In a foreground deletion they are deleted before the job, their coordinator among them: they would ask for it, to be
    drained, until their grace is over.
    """
    late = [pod for pod in draft.alive if draft.now >= pod.deleted + CLEAR_SECONDS]
    draft.act(*(DeletePod(pod.name, at_once=True) for pod in late))
    if len(late) == len(draft.alive):
        draft.act(SetFinalizer(False))
    else:
        draft.note(reason="its pods end")
        draft.look_again(CLEAR_SECONDS)
