"""A policy's answer, checked before anything is done; what cannot be done is decided by a fallback."""

import logging
from dataclasses import dataclass

from dl2_scheduler.cluster.answer_checks import UnfitAnswer, check
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot
from dl2_scheduler.live.reasons import explain
from dl2_scheduler.live.serve_the_waiting import NOBODY, Waited, served
from dl2_scheduler.live.shrink_before_suspend import spared

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decided:
    """A slot's decision.

    Attributes:
        allocation: for every job of the snapshot, with reasons.
        fault: what was wrong with the policy, so that the fallback decided; "": it decided itself.
    """

    allocation: Allocation
    fault: str = ""


def decide(
    policy: AllocationPolicy,
    fallback: AllocationPolicy,
    snapshot: Snapshot,
    rule: NodeRule,
    waited: Waited = NOBODY,
) -> Decided:
    """Ask a policy, whatever it may do.

    Args:
        policy: is asked.
        fallback: is asked where the policy raises, or answers what cannot be done. It is trusted.
        snapshot: the cluster.
        rule: by which tasks find their node.
        waited: see `live/waiting`; left out: nobody has.
    """
    try:
        return Decided(answer(policy, snapshot, rule, waited))
    except UnfitAnswer as error:
        fault = str(error)
    except (Exception, SystemExit) as error:
        log.exception("slot %d: the policy has failed", snapshot.slot)
        fault = f"it raised {type(error).__name__}: {error}"
    return Decided(answer(fallback, snapshot, rule, waited), fault)


def answer(policy: AllocationPolicy, snapshot: Snapshot, rule: NodeRule, waited: Waited = NOBODY) -> Allocation:
    """What a policy decides, with a reason for every job.

    No running job is suspended where others may shrink, and none waits forever: see `sparing` and `waiting`.

    Raises:
        UnfitAnswer: it is for a job that is not there, breaks a job's bounds, or does not fit.
        Exception: whatever the policy raises.
    """
    room = FreeResources(snapshot, rule)
    allocation = policy.allocate(snapshot, room)
    allocation, room = spared(snapshot, allocation, check(snapshot, allocation, room))
    allocation, again = served(snapshot, allocation, rule, waited)
    room = again or room
    grants = {state.job.id: allocation.of(state.job.id) for state in snapshot.jobs}
    reasons = explain(snapshot, Allocation(grants), room)
    return Allocation(
        {job: Grant(int(grant.workers), int(grant.servers), _text(reasons[str(job)])) for job, grant in grants.items()}
    )


def _text(reason: object) -> str:
    """What can be written down of what a policy says."""
    return str(reason).encode(errors="replace").decode()
