"""This module writes into a job's status what its coordinator says of it, with an event for what is new. Pure."""

from collections.abc import Mapping
from math import isfinite

from k8s.elastic_operator.job.model import Desired
from k8s.elastic_operator.job.reconciliation import JobDecisionDraft
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job.status import ENDED, MOST_PLANS

_MOST_METRICS, _LONGEST_NAME = 100, 100

PROTECTED = "Protected"
"""The condition that a job with replicas has while it trains: whether it outlives the death of any one server."""


def mirror(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Write into the status what the coordinator says, and an event for each plan that has ended."""
    before = draft.status
    known = {(plan["id"], plan["ended"]) for plan in before.plans}
    fresh = [plan for plan in report.plans[-MOST_PLANS:] if (plan["id"], plan["ended"]) not in known]
    for ended in fresh:
        who = " ".join([*(f"+{node}" for node in ended["joined"]), *(f"-{node}" for node in ended["left"])])
        draft.write_event(
            "PlanCommitted" if ended["phase"] == "COMMITTED" else "PlanCancelled",
            f"plan {ended['id']} ({ended['cause']}) {ended['phase'].lower()} after {ended['seconds']:.2f} s"
            + (f": {who}" if who else "")
            + (f"; suspension {ended['suspension']:.3f} s" if ended["suspension"] else "")
            + (f"; {ended['reason']}" if ended["reason"] else ""),
        )
    _say_saved(draft, report)
    _say_protected(draft, report)
    draft.note(
        workers=report.roster.workers,
        servers=report.roster.servers,
        epoch=report.epoch if _has_gone_back(report) else max(before.epoch, report.epoch),
        samples_per_epoch=report.samples_per_epoch or before.samples_per_epoch,
        samples_per_second=0.0 if report.ended else round(report.samples_per_second, 1),
        metrics=_shown({**before.metrics, **report.metrics}),
        transport=_transport(draft.desired, report) or before.transport,
        plan=report.plan,
        plans=(*before.plans, *fresh)[-MOST_PLANS:],
        term=max(before.term, report.term),
        trained=before.trained or report.version > 0,
        server_bytes=report.server_bytes or before.server_bytes,
    )


def _has_gone_back(report: CoordinatorReport) -> bool:
    """Return whether a job may be at fewer epochs than were told of: it goes back to a checkpoint, or began from one.

    A coordinator that has just been started again does not know how far its workers are, nor how fast.
    """
    knows = report.samples_per_second > 0 if report.phase == "running" else report.phase in ("starting", "restoring")
    return knows and report.version > 0


def _shown(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that a status has room for, and JSON a number: what is refused is refused as a whole.

    A loss may be nan, and a script may give each epoch's a name of its own.
    """
    names = sorted(name for name, value in metrics.items() if isfinite(value) and len(name) <= _LONGEST_NAME)
    return {name: metrics[name] for name in names[:_MOST_METRICS]}


def _say_saved(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Say whether the job could go on from a checkpoint: that it could not be saved is told before it is needed."""
    before = draft.status.conditions.get("Checkpointed")
    if report.unsaved:
        if before is None or before.status == "True":  # once, however often it is tried
            draft.write_event("NotSaved", report.unsaved, warning=True)
        draft.set_condition("Checkpointed", False, "NotSaved", report.unsaved)
    elif report.checkpoint:
        draft.set_condition("Checkpointed", True, "Saved", report.checkpoint)


def _say_protected(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Say whether the job outlives the death of a server, and write an event when that changes."""
    found = report.protection
    if found is None or draft.status.phase in ENDED:  # a coordinator that is to end tells of it still
        draft.drop_condition(PROTECTED)
        return
    protected, before = not found.cause, draft.status.conditions.get(PROTECTED)
    if protected and not draft.status.condition(PROTECTED):
        draft.write_event("Protected", f"protected {found.text}")
    elif not protected and before is not None and before.status == "True":
        draft.write_event("Unprotected", f"protected {found.text}", warning=True)
    draft.set_condition(PROTECTED, protected, found.cause or "Followed", found.text)


def _transport(job: Desired, report: CoordinatorReport) -> str:
    """Return how tensors travel, in words; TCP needs no reason where nobody asked for shared memory."""
    return f"{report.transport} ({report.fallback})" if job.shared_memory and report.fallback else report.transport
