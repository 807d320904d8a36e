"""This module decides what an ElasticJob needs now, by `plan`. Pure: the same values give the same actions.

Level-triggered: nothing depends on how a state came about, and whatever an action did not reach is asked for again.
"""

from collections.abc import Sequence

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_LATER
from k8s.elastic_operator.job.acceptance import accept
from k8s.elastic_operator.job.actions import DeletePod, Ensure, SetFinalizer, StartCoordinator
from k8s.elastic_operator.job.ending import (
    LOST,
    SILENCE,
    fail,
    finish,
    is_stopping,
    leave,
    may_tell,
    rest,
    stand,
    suspend,
)
from k8s.elastic_operator.job.mirror import mirror
from k8s.elastic_operator.job.model import GOING, PORT, Counts, Desired, timestamp
from k8s.elastic_operator.job.nodes import match, mourn
from k8s.elastic_operator.job.pods import Pod
from k8s.elastic_operator.job.reconciliation import ApiDenial, JobDecisionDraft, ObservedJob, OperatorDecision
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job.status import ENDED, RUNNING, STARTING, SUSPENDED, SUSPENDING, WAITING
from k8s.foundation.names import JOB_LABEL, ROLE_LABEL

_GOING_SECONDS = 5.0
"""Between two tries to make a claim anew, as long as the old one is not gone."""
_REFUSED_SECONDS = 10.0
"""From a coordinator's pod that its node would not take to the next one: the node refuses at once, again and again."""
KEPT = "Kept"
"""The condition that the operator breaks on a job, or has. Others are not concerned."""
BEGINS = "Starting"
"""Of the condition Coordinated: no coordinator of the job's has told of it yet."""
MOST_CRASHES = 5
"""Of the coordinator's container in one pod, without a word in between: it will not start."""


def plan(seen: ObservedJob, desired: Desired, now: float) -> OperatorDecision:
    """Return what to do about a job.

    Args:
        seen: the job as it is.
        desired: as it shall be.
        now: unix seconds.
    """
    draft = JobDecisionDraft(seen, desired, now)
    _own_up(draft)
    _introduce(draft)
    if draft.report is not None:
        mirror(draft, draft.report)
    if desired.deleting:
        leave(draft)
    elif draft.status.phase in ENDED:
        rest(draft)
    else:
        if not desired.finalizer:
            draft.act(SetFinalizer(True))
        if accept(draft):
            _drive(draft, _wanted(draft))
    return draft.decision()


def _own_up(draft: JobDecisionDraft) -> None:
    """Say that this operator breaks on the job, or does not any more."""
    if draft.seen.trouble:
        draft.set_condition(KEPT, False, "Error", draft.seen.trouble)
    elif KEPT in draft.status.conditions:
        draft.set_condition(KEPT, True, "Kept")


def _introduce(draft: JobDecisionDraft) -> None:
    job = draft.desired
    draft.note(
        observed_generation=job.generation,
        selector=f"{JOB_LABEL}={job.name},{ROLE_LABEL}={Role.WORKER}",
        coordinator=f"{job.name}-coordinator.{job.namespace}:{PORT}",
    )


def _wanted(draft: JobDecisionDraft) -> Counts:
    """Return the counts that shall run: those that do, where the document of a job with pods has lost its own."""
    job, status, report = draft.desired, draft.status, draft.report
    if job.is_counted or status.phase not in (STARTING, RUNNING):
        return job.counts
    if report is not None and report.wanted:
        return report.wanted
    return job.whole(max(1, status.workers), max(1, status.servers))


def _drive(draft: JobDecisionDraft, want: Counts) -> None:
    """Decide about a job that is neither over nor to be deleted."""
    phase, report = draft.status.phase, draft.report
    if report is not None and report.ended and not draft.ended_by_us and phase != SUSPENDED:
        finish(draft, report)
    elif not want or draft.ended_by_us:
        suspend(draft, revive=_revive, serve=_serve)
    elif phase in ("", WAITING, SUSPENDED):
        _begin(draft, want)
    elif draft.coordinator is None or not draft.coordinator.alive:
        _revive(draft)
    else:
        _serve(draft, want)


def _retry(draft: JobDecisionDraft, denied: ApiDenial) -> None:
    """Try the pods again that the API server would not make, while the coordinator has not said how many it wants."""
    draft.note(reason=denied.reason)
    if denied.again > 0:
        draft.look_again(denied.again)
    else:
        draft.act(Ensure(), *denied.starts)


def _begin(draft: JobDecisionDraft, want: Counts) -> None:
    """Start all pods of a job that has none."""
    leftover = draft.seen.pods
    if leftover:
        draft.delete(leftover)
        if any(not pod.lost for pod in leftover):
            draft.note(phase=draft.status.phase or WAITING, reason="pods of its last run are ending")
            return
    status, job = draft.status, draft.desired
    restore = status.trained and bool(job.checkpoint)
    first = Counts(status.created.workers + 1, status.created.servers + 1)
    draft.note(
        phase=STARTING,
        reason="its pods start" + (", from its last checkpoint" if restore else ""),
        term=status.term + 1,
        created=Counts(status.created.workers + want.workers, status.created.servers + want.servers),
        start_time=status.start_time or timestamp(draft.now),
        trained=restore,
        coordinator_restarts=0,
        whole=False,
        failed_starts=Counts(),
    )
    draft.set_condition("Suspended", False, "Starting")
    stand(draft, "Starting")
    draft.write_event("Starting", f"{want.words}{' from a checkpoint' if restore else ''}")
    draft.set_condition("Coordinated", False, BEGINS)
    draft.act(Ensure(), StartCoordinator(draft.status.term, want, restore, begins=True))
    for role, number, count in (
        (Role.SERVER, first.servers, want.servers),
        (Role.WORKER, first.workers, want.workers),
    ):
        for n in range(number, number + count):
            draft.start(role, n)


def _revive(draft: JobDecisionDraft) -> None:
    """Bring the coordinator back, whose pod is gone or is going, or end the job where nothing is left of it."""
    pod, denied = draft.coordinator, draft.seen.denied
    if pod is None and denied is not None and denied.coordinator is not None:
        _say_placed(draft)
        _retry(draft, denied)
        return
    if pod is not None and (rest := _pause(draft, pod)):
        refused = ": ".join(filter(None, (f"{pod.name} was not taken by {pod.node}", pod.trouble)))
        draft.note(reason=f"{refused}; another one is tried in {rest:.0f} s")
        draft.look_again(rest)
        return
    if pod is not None:
        draft.note(reason="its coordinator is lost" if pod.lost else "its coordinator's pod ends")
        if pod.lost or not pod.deleting:
            draft.act(DeletePod(pod.name, at_once=True))
        return
    nodes = [node for node in draft.nodes() if node.staying]
    wanted = draft.desired.counts
    if nodes or not draft.status.trained:
        counts = wanted or draft.desired.whole(max(1, draft.status.workers), max(1, draft.status.servers))
        asks = "reads its journal" if draft.desired.claim else "asks its nodes"
        again = f"its coordinator is started again, and {asks}"
        draft.note(term=draft.status.term + 1, reason=again, coordinator_restarts=0)
        _say_lost(draft, asks)
        # Whether it has trained while no operator was there, a journal on a volume knows; without one nodes are asked.
        begins = not nodes and not draft.desired.claim
        draft.act(Ensure(), StartCoordinator(draft.status.term, counts, begins=begins))
    elif is_stopping(draft):  # workers that have ended well were stopped: they have not done all
        draft.note(phase=SUSPENDED if wanted else SUSPENDING, reason="its pods end")
    elif _all_ended_well(draft.nodes(Role.WORKER)):
        finish(draft, CoordinatorReport(phase="finished", reason="all workers have ended well"))
    elif draft.desired.checkpoint:
        draft.note(phase=SUSPENDED, workers=0, servers=0, reason="all its pods were lost")
        stand(draft, "AllLost")
        draft.write_event("AllLost", "no pod is left: the job goes back to its last checkpoint", warning=True)
        draft.look_again(0.0)
    else:
        fail(draft, "all its pods were lost, and it has no checkpoint: give spec.checkpoint to survive this")


def _say_lost(draft: JobDecisionDraft, asks: str) -> None:
    """Say that a coordinator is lost, once, however often another one is tried. Where none was made, none is lost."""
    before = draft.status.conditions.get("Coordinated")
    told = before is not None and before.reason == LOST
    if before is not None and before.reason == BEGINS and not draft.nodes():  # its coordinator's pod is made first
        return
    lost = f"its pod is gone: another one takes over in term {draft.status.term}, and {asks}"
    draft.set_condition("Coordinated", False, LOST, lost)
    if not told:
        draft.write_event("CoordinatorLost", lost, warning=True)


def _pause(draft: JobDecisionDraft, pod: Pod) -> float:
    """Return the seconds until a coordinator's pod that its node would not take makes way; 0.0: now, or it is another.

    By two clocks: where the API server's is ahead of the operator's there is none.
    """
    if not pod.unstarted or pod.deleting or pod.lost or pod.created > draft.now:
        return 0.0
    if draft.status.trained and not any(node.staying for node in draft.nodes()):
        return 0.0
    return max(0.0, pod.created + _REFUSED_SECONDS - draft.now)


def _all_ended_well(workers: Sequence[Pod]) -> bool:
    """Return whether the job's script has ended.

    Pods that a scaling has let go are deleted; Failed ones are of before.
    """
    ended = any(pod.phase == "Succeeded" and not pod.deleting for pod in workers)
    return ended and not any(pod.lost for pod in workers)


def _serve(draft: JobDecisionDraft, want: Counts) -> None:
    """Keep a job whose coordinator's pod is there as it shall be."""
    coordinator, report = draft.coordinator, draft.report
    assert coordinator is not None, "asked before"
    if draft.seen.claim == GOING:
        draft.look_again(_GOING_SECONDS)
    changed = draft.seen.prepared != draft.desired.generation
    draft.act(*([Ensure()] if changed or draft.seen.claim == GOING else []))
    _say_placed(draft)
    denied = draft.seen.denied
    if report is None:
        if _crashes(draft, coordinator) and may_tell(draft):  # its crashes may be over: nobody has listened before
            draft.look_again(SILENCE - draft.seen.silent)
        elif _crashes(draft, coordinator):
            fail(draft, f"its coordinator does not start: {coordinator.trouble}")
        elif denied is not None:
            _retry(draft, denied)
        else:
            draft.note(reason=_pending(draft) or _silence(draft, coordinator))
        return
    running = report.phase == "running"
    _say_changed(draft, report)
    _say_back(draft, report)
    draft.note(phase=RUNNING if running else STARTING, coordinator_restarts=coordinator.container_restarts)
    draft.set_condition("Running", running, "Training" if running else report.phase.title(), report.reason)
    if not mourn(draft, report):
        return
    match(draft, report, want)
    why = denied.reason if denied is not None else _pending(draft)
    draft.note(reason=why or ("" if running else report.reason or "its nodes join"))


def _crashes(draft: JobDecisionDraft, coordinator: Pod) -> bool:
    """Return whether a coordinator has ended too often since it was heard last, of something that will not pass.

    What may pass is waited for where training would be lost: the job trains, or goes on from a checkpoint.
    """
    crashes = coordinator.container_restarts - draft.status.coordinator_restarts
    has_trained = draft.status.phase == RUNNING or draft.status.trained
    waits = has_trained and (coordinator.barred or coordinator.last_status == EXIT_LATER)
    return crashes >= MOST_CRASHES and bool(coordinator.trouble) and not waits


def _say_changed(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Write an event where a job begins to train, or goes back to a checkpoint."""
    trained = draft.status.phase == RUNNING
    if report.phase == "running" and not trained:
        draft.write_event("Running", f"{report.roster.words} train")
    elif report.phase == "restoring" and trained:
        draft.write_event("Restoring", report.reason or "the job goes back to its last checkpoint", warning=True)


def _say_back(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Say where what a new coordinator knows comes from."""
    before = draft.status.conditions.get("Coordinated")
    if before is None or before.status == "True" or report.phase == "rebuilding":
        return
    if before.reason != LOST:
        draft.set_condition("Coordinated", True, "Started")
        return
    nodes = "it had no journal, and knows the job from its nodes: its ledger begins here"
    how = nodes if report.rebuilt else "it goes on from its journal, and so does its ledger"
    draft.set_condition("Coordinated", True, "Rebuilt" if report.rebuilt else "Resumed", how)
    draft.write_event("CoordinatorBack", f"term {report.term}: {how}")


def _say_placed(draft: JobDecisionDraft) -> None:
    if draft.seen.denied is not None:
        draft.set_condition("Scheduled", False, "Refused", draft.seen.denied.message)
        return
    waiting = [pod for pod in draft.seen.pods if pod.staying and not pod.node]
    message = waiting[0].trouble if waiting else ""
    draft.set_condition("Scheduled", not waiting, "Waits" if waiting else "Placed", message)


def _pending(draft: JobDecisionDraft) -> str:
    """Return what keeps pods from running, for people; "": nothing."""
    stuck = next((pod for pod in draft.seen.pods if pod.staying and pod.phase == "Pending" and pod.trouble), None)
    if stuck is None:
        return ""
    if stuck.node:
        return stuck.trouble
    return f"{stuck.name} is {stuck.trouble}" + (_claimed(draft) if stuck.role is None else "")


def _claimed(draft: JobDecisionDraft) -> str:
    """Say what to do about the volume of a coordinator that is not placed."""
    name = draft.desired.claim
    return {
        "Pending": f"; its claim has no volume yet: kubectl describe pvc {name} says why, mend that or submit the job "
        "again with another coordinator.volume.storageClassName",
        "Lost": f"; its volume is gone: kubectl delete pvc {name}, and the coordinator asks its nodes",
        "Bound": f"; it goes only where the volume of its claim {name} is",
    }.get(draft.seen.claim, "")


def _silence(draft: JobDecisionDraft, coordinator: Pod) -> str:
    """Return why a coordinator whose pod is placed does not answer, for people."""
    if draft.seen.stranger:
        _say_strange(draft)
        return STRANGER
    if coordinator.container_restarts and coordinator.trouble:
        return f"its coordinator does not start: {coordinator.trouble}"
    if draft.desired.claim and coordinator.phase == "Pending" and coordinator.node:
        return f"{coordinator.name} starts on {coordinator.node}, which its volume comes to (kubectl describe pod)"
    return "its coordinator does not answer" if draft.status.phase == RUNNING else "its coordinator starts"


STRANGER = (
    "its coordinator refuses this operator's token: the operator's key is not the one that the job began with. Put "
    "that one back into the operator's secret and start the operator again; else delete the job and submit it again"
)


def _say_strange(draft: JobDecisionDraft) -> None:
    """Say that what is wanted of the job cannot be passed on, so that nobody thinks that it was."""
    before = draft.status.conditions.get("Coordinated")
    if before is None or before.reason != "TokenRefused":
        draft.write_event("TokenRefused", f"{STRANGER} ({draft.seen.stranger})", warning=True)
    draft.set_condition("Coordinated", False, "TokenRefused", draft.seen.stranger)
    draft.set_condition("Scaled", False, "TokenRefused", STRANGER)
