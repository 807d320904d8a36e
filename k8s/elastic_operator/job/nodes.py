"""Workers and servers of a job whose coordinator answers: as many as it wants, and what becomes of the dead. Pure."""

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.actions import DeletePod, LabelPod, Scale, Stop, TellExit
from k8s.elastic_operator.job.ending import fail
from k8s.elastic_operator.job.model import CAUSE, Counts, Pod
from k8s.elastic_operator.job.reconciliation import Turn
from k8s.elastic_operator.job.report import Report


def mourn(turn: Turn, report: Report) -> bool:
    """Count pods that have died and tell the coordinator.

    Those that the cluster has taken (their node is lost, they were evicted, somebody removed them) are replaced as
    often as it happens; those that ended by themselves, `retryLimit` times.

    Returns:
        Whether the job may go on.
    """
    present = {pod.name for pod in turn.nodes()}
    dead = {pod.name: _how(pod) for pod in turn.nodes() if _has_died(turn, pod)}
    frozen = [pod.name for pod in turn.nodes() if pod.staying and report.has_expelled(pod.name)]
    dead |= {
        name: "it was evicted" if report.has_evicted(name) else "it was silent or cut off for too long"
        for name in frozen
    }
    turn.act(*(DeletePod(name, at_once=True) for name in frozen))
    owners = {nonce: nonce.rpartition(".")[0] for nonce in report.members}
    dead |= {pod: "its pod is gone" for pod in owners.values() if pod and pod not in present}
    turn.act(*(TellExit(nonce, report.members[nonce]) for nonce, pod in owners.items() if pod in dead))
    turn.act(*(DeletePod(pod.name, at_once=True) for pod in turn.nodes() if pod.lost))
    counted = turn.status.counted
    fresh = [name for name in dead if name not in counted]
    taken = {pod.name for pod in turn.nodes() if pod.lost or pod.disrupted or report.has_evicted(pod.name)}
    failed = [name for name in fresh if name in present and name not in taken]
    turn.note(
        restarts=turn.status.restarts + len(fresh),
        failures=turn.status.failures + len(failed),
        counted=(*(name for name in counted if name in present or name in dead), *fresh),
    )
    for name in fresh:
        turn.event("NodeDied", f"{name}: {dead[name]}", warning=True)
    limit = turn.desired.retry_limit
    if turn.status.failures <= limit:
        return True
    if failed:
        why = f"{failed[-1]}: {dead[failed[-1]]}; retryLimit {limit} has been used up"
        turn.act(Stop(f"{CAUSE}: {why}"))
        fail(turn, why)
    return not failed


def _has_died(turn: Turn, pod: Pod) -> bool:
    if pod.lost or (pod.phase == "Failed" and not pod.deleting):
        return True
    return pod.phase == "Succeeded" and not pod.member and not turn.status.trained


def _how(pod: Pod) -> str:
    if pod.lost:
        return f"node {pod.node} does not answer"
    if pod.phase == "Succeeded":
        return "it ended without having joined the job; does the script call elastic_ps.init()?"
    how = f"exit status {pod.exit_status}" if pod.exit_status is not None else "failed"
    return f"{how}: {pod.trouble}" if pod.trouble else how


def match(turn: Turn, report: Report, want: Counts) -> None:
    """Ask for other numbers where they differ; start and end pods as the coordinator wants."""
    if report.phase == "rebuilding":  # it does not know yet whom it has
        if not any(pod.staying for pod in turn.nodes()):  # nobody is left that could tell it: new ones show that
            for role in (Role.SERVER, Role.WORKER):
                _start(turn, role, report.wanted.of(role))
        return
    _scale(turn, report, want)
    for pod in turn.nodes():
        member = report.member(pod.name)
        if member and member != pod.member:
            turn.act(LabelPod(pod.name, member))
    for role in (Role.SERVER, Role.WORKER):
        _match(turn, report, role)


def _scale(turn: Turn, report: Report, want: Counts) -> None:
    refused = turn.seen.refused
    if report.wanted == want:
        done = report.roster == want
        turn.tell("Scaled", done, "AsWanted" if done else "UnderWay", report.plan)
    elif refused is not None and refused[0] == want:
        turn.tell("Scaled", False, "Refused", refused[1])
    else:
        turn.tell("Scaled", False, "Asked", f"{want.workers} workers and {want.servers} servers")
        turn.act(Scale(want, turn.desired.cause))


def _match(turn: Turn, report: Report, role: Role) -> None:
    pods = turn.nodes(role)
    pending = [
        pod
        for pod in pods
        if pod.staying
        and not report.member(pod.name)
        and not report.has_expelled(pod.name)
        and not (pod.member and pod.member in report.left)
    ]
    wanted = report.starting.of(role)
    if report.phase == "restoring":  # processes of all pods end, and come back in their pods
        pending, wanted = [pod for pod in pods if pod.staying], report.wanted.of(role)
    _start(turn, role, wanted - len(pending))
    turn.delete(sorted(pending, key=_number)[wanted:])
    if report.phase == "running":  # those of a job that ends are kept, for their logs
        turn.delete(pod for pod in pods if pod.phase == "Succeeded" and pod.member in report.left)


def _start(turn: Turn, role: Role, count: int) -> None:
    """Ask for pods. Numbers of those that the API server would not make are taken again, later and later."""
    denied = turn.seen.denied
    if denied is not None and denied.again > 0:
        turn.look_again(denied.again)
        return
    numbers = denied.numbers(role) if denied is not None else []
    for place in range(count):
        if place < len(numbers):
            turn.start(role, numbers[place])
            continue
        created = turn.status.created
        number = created.of(role) + 1
        workers, servers = (number, created.servers) if role is Role.WORKER else (created.workers, number)
        turn.note(created=Counts(workers, servers))
        turn.start(role, number)


def _number(pod: Pod) -> int:
    return int(pod.name.rpartition("-")[2])
