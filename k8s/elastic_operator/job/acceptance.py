"""This module decides whether a job may begin: it may when the API server has seen its pods, and takes them. Pure."""

from k8s.elastic_operator.job.actions import JudgePods
from k8s.elastic_operator.job.model import Desired
from k8s.elastic_operator.job.reconciliation import JobDecisionDraft
from k8s.elastic_operator.job.status import WAITING

ACCEPTED = "Accepted"


def accept(draft: JobDecisionDraft) -> bool:
    """Ask for a verdict on the pods before the first of them is made, and again after each change until then.

    Returns:
        Whether the job may go on. Where it may not, its condition Accepted and its reason say why.
    """
    status, job, verdict = draft.status, draft.desired, draft.seen.verdict
    if status.term:
        return True  # its pods have been made, and templates do not change any more
    if verdict is None or verdict.generation != job.generation:
        if ACCEPTED not in status.conditions:
            draft.set_condition(ACCEPTED, False, "Asked", "the API server is asked whether it takes the job's pods")
            draft.note(phase=WAITING, reason="the API server is asked whether it takes its pods")
        draft.act(JudgePods())
        return False
    if verdict.reason:
        before = status.conditions.get(ACCEPTED)
        if before is None or before.message != verdict.message:
            draft.write_event(verdict.reason, verdict.message, warning=True)
        draft.set_condition(ACCEPTED, False, verdict.reason, verdict.message)
        draft.note(phase=WAITING, reason=f"{verdict.reason}: {verdict.message}")
        draft.look_again(verdict.again)
        return False
    if not status.condition(ACCEPTED):
        draft.set_condition(ACCEPTED, True, "Judged")
        if not job.checkpoint:
            text = f"spec.checkpoint.url is missing: {_fatal_loss(job)} the job fails; {_BESIDES}"
            draft.write_event("NoCheckpoint", text, warning=True)
    return True


def _fatal_loss(job: Desired) -> str:
    """Return what a job without checkpoints does not survive, as the beginning of a sentence."""
    if job.all_reduces:
        return "if all workers are lost at once"
    return _LOSS_OF_TWO if job.block_replicas else _LOSS_OF_ONE


_LOSS_OF_ONE = "if a server is lost (its process dies, its node fails)"
_LOSS_OF_TWO = "if two servers are lost at once, or one while blocks have no follower,"
_BESIDES = "what it has trained is lost then, and it cannot be suspended"
