"""What an ElasticJob needs now: `plan`. Pure: the same values give the same actions.

Level-triggered: nothing depends on how a state came about, and whatever an action did not reach is asked for again.
"""

from collections.abc import Sequence

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.acceptance import accept
from k8s.elastic_operator.job.actions import DeletePod, Ensure, SetFinalizer, StartCoordinator
from k8s.elastic_operator.job.ending import fail, finish, is_stopping, leave, rest, suspend
from k8s.elastic_operator.job.model import GOING, PORT, Counts, Desired, Pod, timestamp
from k8s.elastic_operator.job.nodes import match, mourn
from k8s.elastic_operator.job.reconciliation import Decision, Denial, Observed, Turn
from k8s.elastic_operator.job.report import Report
from k8s.elastic_operator.job.status import (
    ENDED,
    MOST_PLANS,
    RUNNING,
    STARTING,
    SUSPENDED,
    SUSPENDING,
    WAITING,
)
from k8s.foundation.names import JOB_LABEL, ROLE_LABEL

_GOING_SECONDS = 5.0
"""Between two tries to make a claim anew, as long as the old one is not gone."""
LOST = "Lost"
KEPT = "Kept"
"""The condition that the operator breaks on a job, or has. Others are not concerned."""
MOST_CRASHES = 5
"""Of the coordinator's container in one pod, without a word in between: it will not start."""


def plan(seen: Observed, desired: Desired, now: float) -> Decision:
    """What to do about a job.

    Args:
        seen: the job as it is.
        desired: as it shall be.
        now: unix seconds.
    """
    turn = Turn(seen, desired, now)
    _own_up(turn)
    _introduce(turn)
    if turn.report is not None:
        _mirror(turn, turn.report)
    if desired.deleting:
        leave(turn)
    elif turn.status.phase in ENDED:
        rest(turn)
    else:
        if not desired.finalizer:
            turn.act(SetFinalizer(True))
        if accept(turn):
            _drive(turn, desired.counts)
    return turn.decision()


def _own_up(turn: Turn) -> None:
    """Say that this operator breaks on the job, or does not any more."""
    if turn.seen.trouble:
        turn.tell(KEPT, False, "Error", turn.seen.trouble)
    elif KEPT in turn.status.conditions:
        turn.tell(KEPT, True, "Kept")


def _introduce(turn: Turn) -> None:
    job = turn.desired
    turn.note(
        observed_generation=job.generation,
        selector=f"{JOB_LABEL}={job.name},{ROLE_LABEL}={Role.WORKER}",
        coordinator=f"{job.name}-coordinator.{job.namespace}:{PORT}",
    )


def _mirror(turn: Turn, report: Report) -> None:
    """What the coordinator says, in the status; an event for each plan that has ended."""
    before = turn.status
    known = {(plan["id"], plan["ended"]) for plan in before.plans}
    fresh = [plan for plan in report.plans[-MOST_PLANS:] if (plan["id"], plan["ended"]) not in known]
    for ended in fresh:
        who = " ".join([*(f"+{node}" for node in ended["joined"]), *(f"-{node}" for node in ended["left"])])
        turn.event(
            "PlanCommitted" if ended["phase"] == "COMMITTED" else "PlanCancelled",
            f"plan {ended['id']} ({ended['cause']}) {ended['phase'].lower()} after {ended['seconds']:.2f} s"
            + (f": {who}" if who else "")
            + (f"; suspension {ended['suspension']:.3f} s" if ended["suspension"] else "")
            + (f"; {ended['reason']}" if ended["reason"] else ""),
        )
    _say_saved(turn, report)
    turn.note(
        workers=report.roster.workers,
        servers=report.roster.servers,
        epoch=max(report.epoch, 0.0 if report.version else before.epoch),
        samples_per_epoch=report.samples_per_epoch or before.samples_per_epoch,
        samples_per_second=0.0 if report.ended else round(report.samples_per_second, 1),
        metrics={**before.metrics, **report.metrics},
        transport=_transport(turn.desired, report) or before.transport,
        plan=report.plan,
        plans=(*before.plans, *fresh)[-MOST_PLANS:],
        term=max(before.term, report.term),
        trained=before.trained or report.version > 0,
        server_bytes=report.server_bytes or before.server_bytes,
    )


def _say_saved(turn: Turn, report: Report) -> None:
    """Return whether the job could go on from a checkpoint: that it could not be saved is told before it is needed."""
    before = turn.status.conditions.get("Checkpointed")
    if report.unsaved:
        if before is None or before.status == "True":  # once, however often it is tried
            turn.event("NotSaved", report.unsaved, warning=True)
        turn.tell("Checkpointed", False, "NotSaved", report.unsaved)
    elif report.checkpoint:
        turn.tell("Checkpointed", True, "Saved", report.checkpoint)


def _transport(job: Desired, report: Report) -> str:
    """How tensors travel; TCP needs no reason where nobody asked for shared memory."""
    return f"{report.transport} ({report.fallback})" if job.shared_memory and report.fallback else report.transport


def _drive(turn: Turn, want: Counts) -> None:
    """A job that is neither over nor to be deleted."""
    phase, report = turn.status.phase, turn.report
    if report is not None and report.ended and not turn.ended_by_us and phase != SUSPENDED:
        finish(turn, report)
    elif not want or turn.ended_by_us:
        suspend(turn, revive=_revive, serve=_serve)
    elif phase in ("", WAITING, SUSPENDED):
        _begin(turn, want)
    elif turn.coordinator is None and turn.seen.denied is not None and turn.seen.denied.coordinator is not None:
        _say_placed(turn)
        _retry(turn, turn.seen.denied)
    elif turn.coordinator is None or not turn.coordinator.alive:
        _revive(turn)
    else:
        _serve(turn, want)


def _retry(turn: Turn, denied: Denial) -> None:
    """Pods of a job that the API server would not make, before its coordinator has said how many there are to be."""
    turn.note(reason=denied.reason)
    if denied.again > 0:
        turn.look_again(denied.again)
    else:
        turn.act(Ensure(), *denied.starts)


def _begin(turn: Turn, want: Counts) -> None:
    """All pods of a job that has none."""
    leftover = turn.seen.pods
    if leftover:
        turn.delete(leftover)
        if any(not pod.lost for pod in leftover):
            turn.note(phase=turn.status.phase or WAITING, reason="pods of its last run are ending")
            return
    status, job = turn.status, turn.desired
    restore = status.trained and bool(job.checkpoint)
    first = Counts(status.created.workers + 1, status.created.servers + 1)
    turn.note(
        phase=STARTING,
        reason="its pods start" + (", from its last checkpoint" if restore else ""),
        term=status.term + 1,
        created=Counts(status.created.workers + want.workers, status.created.servers + want.servers),
        start_time=status.start_time or timestamp(turn.now),
        trained=restore,
    )
    turn.tell("Suspended", False, "Starting")
    turn.event(
        "Starting", f"{want.workers} workers and {want.servers} servers{' from a checkpoint' if restore else ''}"
    )
    turn.tell("Coordinated", False, "Starting")
    turn.act(Ensure(), StartCoordinator(turn.status.term, want, restore, begins=True))
    for role, number, count in (
        (Role.SERVER, first.servers, want.servers),
        (Role.WORKER, first.workers, want.workers),
    ):
        for n in range(number, number + count):
            turn.start(role, n)


def _revive(turn: Turn) -> None:
    """The coordinator's pod is gone, or is going."""
    pod = turn.coordinator
    if pod is not None:
        turn.note(reason="its coordinator is lost" if pod.lost else "its coordinator's pod ends")
        if pod.lost or not pod.deleting:
            turn.act(DeletePod(pod.name, at_once=True))
        return
    nodes = [node for node in turn.nodes() if node.staying]
    wanted = turn.desired.counts
    if nodes or not turn.status.trained:
        counts = wanted or Counts(max(1, turn.status.workers), max(1, turn.status.servers))
        asks = "reads its journal" if turn.desired.claim else "asks its nodes"
        turn.note(term=turn.status.term + 1, reason=f"its coordinator is started again, and {asks}")
        lost = f"its pod is gone: another one takes over in term {turn.status.term}, and {asks}"
        turn.tell("Coordinated", False, LOST, lost)
        turn.event("CoordinatorLost", lost, warning=True)
        turn.act(Ensure(), StartCoordinator(turn.status.term, counts, begins=not nodes))
    elif is_stopping(turn):  # workers that have ended well were stopped: they have not done all
        turn.note(phase=SUSPENDED if wanted else SUSPENDING, reason="its pods end")
    elif _all_ended_well(turn.nodes(Role.WORKER)):
        finish(turn, Report(phase="finished", reason="all workers have ended well"))
    elif turn.desired.checkpoint:
        turn.note(phase=SUSPENDED, workers=0, servers=0, reason="all its pods were lost")
        turn.event("AllLost", "no pod is left: the job goes back to its last checkpoint", warning=True)
        turn.look_again(0.0)
    else:
        fail(turn, "all its pods were lost, and it has no checkpoint: give spec.checkpoint to survive this")


def _all_ended_well(workers: Sequence[Pod]) -> bool:
    """Whether the job's script has ended. Those that a scaling has let go are deleted; Failed ones are of before."""
    ended = any(pod.phase == "Succeeded" and not pod.deleting for pod in workers)
    return ended and not any(pod.lost for pod in workers)


def _serve(turn: Turn, want: Counts) -> None:
    """A job whose coordinator's pod is there."""
    coordinator, report = turn.coordinator, turn.report
    assert coordinator is not None, "asked before"
    if turn.seen.claim == GOING:
        turn.look_again(_GOING_SECONDS)
    changed = turn.seen.status.observed_generation != turn.desired.generation
    turn.act(*([Ensure()] if changed or turn.seen.claim == GOING else []))
    _say_placed(turn)
    denied = turn.seen.denied
    if report is None:
        if coordinator.container_restarts >= MOST_CRASHES and coordinator.trouble:
            fail(turn, f"its coordinator does not start: {coordinator.trouble}")
        elif denied is not None:
            _retry(turn, denied)
        else:
            turn.note(reason=_pending(turn) or _silence(turn, coordinator))
        return
    running = report.phase == "running"
    _say_changed(turn, report)
    _say_back(turn, report)
    turn.note(phase=RUNNING if running else STARTING)
    turn.tell("Running", running, "Training" if running else report.phase.title(), report.reason)
    if not mourn(turn, report):
        return
    match(turn, report, want)
    why = denied.reason if denied is not None else _pending(turn)
    turn.note(reason=why or ("" if running else report.reason or "its nodes join"))


def _say_changed(turn: Turn, report: Report) -> None:
    """Events of a job that begins to train, or goes back."""
    trained = turn.status.phase == RUNNING
    if report.phase == "running" and not trained:
        turn.event("Running", f"{report.roster.workers} workers and {report.roster.servers} servers train")
    elif report.phase == "restoring" and trained:
        turn.event("Restoring", report.reason or "the job goes back to its last checkpoint", warning=True)


def _say_back(turn: Turn, report: Report) -> None:
    """Where what a new coordinator knows comes from."""
    before = turn.status.conditions.get("Coordinated")
    if before is None or before.status == "True" or report.phase == "rebuilding":
        return
    if before.reason != LOST:
        turn.tell("Coordinated", True, "Started")
        return
    nodes = "it had no journal, and knows the job from its nodes: its ledger begins here"
    how = nodes if report.rebuilt else "it goes on from its journal, and so does its ledger"
    turn.tell("Coordinated", True, "Rebuilt" if report.rebuilt else "Resumed", how)
    turn.event("CoordinatorBack", f"term {report.term}: {how}")


def _say_placed(turn: Turn) -> None:
    if turn.seen.denied is not None:
        turn.tell("Scheduled", False, "Refused", turn.seen.denied.message)
        return
    waiting = [pod for pod in turn.seen.pods if pod.staying and not pod.node]
    message = waiting[0].trouble if waiting else ""
    turn.tell("Scheduled", not waiting, "Waits" if waiting else "Placed", message)


def _pending(turn: Turn) -> str:
    """What keeps pods from running; "": nothing."""
    stuck = next((pod for pod in turn.seen.pods if pod.staying and pod.phase == "Pending" and pod.trouble), None)
    if stuck is None:
        return ""
    if stuck.node:
        return stuck.trouble
    return f"{stuck.name} is {stuck.trouble}" + (_claimed(turn) if stuck.role is None else "")


def _claimed(turn: Turn) -> str:
    """What to do about the volume of a coordinator that is not placed."""
    name = turn.desired.claim
    return {
        "Pending": f"; its claim has no volume yet: kubectl describe pvc {name} says why, mend that or submit the job "
        "again with another coordinator.volume.storageClassName",
        "Lost": f"; its volume is gone: kubectl delete pvc {name}, and the coordinator asks its nodes",
        "Bound": f"; it goes only where the volume of its claim {name} is",
    }.get(turn.seen.claim, "")


def _silence(turn: Turn, coordinator: Pod) -> str:
    """Of a coordinator whose pod is placed."""
    if turn.seen.stranger:
        _say_strange(turn)
        return STRANGER
    if coordinator.container_restarts and coordinator.trouble:
        return f"its coordinator does not start: {coordinator.trouble}"
    if turn.desired.claim and coordinator.phase == "Pending" and coordinator.node:
        return f"{coordinator.name} starts on {coordinator.node}, which its volume comes to (kubectl describe pod)"
    return "its coordinator does not answer" if turn.status.phase == RUNNING else "its coordinator starts"


STRANGER = (
    "its coordinator refuses this operator's token: the operator's key is not the one that the job began with. Put "
    "that one back into the operator's secret and start the operator again; else delete the job and submit it again"
)


def _say_strange(turn: Turn) -> None:
    """What is wanted of the job cannot be passed on: nobody is to think that it was."""
    before = turn.status.conditions.get("Coordinated")
    if before is None or before.reason != "TokenRefused":
        turn.event("TokenRefused", f"{STRANGER} ({turn.seen.stranger})", warning=True)
    turn.tell("Coordinated", False, "TokenRefused", turn.seen.stranger)
    turn.tell("Scaled", False, "TokenRefused", STRANGER)
