"""Which pods go to which nodes now: whole gangs first, in the order of the queue. Pure."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from dl2_scheduler.backends.kube.constraints import Constraints
from dl2_scheduler.backends.kube.floor import Claim, Floor, Requests
from dl2_scheduler.backends.kube.gangs import Gang, group, unknown
from dl2_scheduler.backends.kube.objects import ROLES, SCHEDULER, JobInfo, NodeInfo, PodInfo
from dl2_scheduler.cluster.room import NodeRule


@dataclass(frozen=True)
class Bind:
    """Bind a pod to a node."""

    pod: PodInfo
    node: str


@dataclass(frozen=True)
class Wait:
    """Leave a pod unbound.

    Attributes:
        pod: which.
        reason: why, for people.
    """

    pod: PodInfo
    reason: str


@dataclass(frozen=True)
class Return:
    """Delete a pod of a gang that has not become whole.

    Attributes:
        pod: which.
        reason: why, for people.
    """

    pod: PodInfo
    reason: str


@dataclass(frozen=True)
class Reservation:
    """Room kept for a pod that is not there yet.

    Attributes:
        job: its id.
        role: of the pod.
        node: where.
    """

    job: str
    role: str
    node: str


@dataclass
class Decisions:
    """About all pods that are not bound.

    Attributes:
        bindings: to make, in this order.
        waits: pods that are left.
        returns: pods to delete.
        reservations: kept until the next decision, which makes them again.
        again_at: unix seconds, at which something changes by time alone; None: nothing does.
    """

    bindings: list[Bind] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    again_at: float | None = None


@dataclass(frozen=True)
class _Task:
    """A pod to place, or one that is yet to come."""

    role: str
    requests: Requests
    constraints: Constraints
    pod: PodInfo | None


def decide(
    nodes: Sequence[NodeInfo],
    pods: Sequence[PodInfo],
    jobs: Sequence[JobInfo],
    now: float,
    rule: NodeRule,
    namespaces: Container[str] | None = None,
) -> Decisions:
    """Place what is not bound.

    In this order: the missing part of gangs that are bound in part (of a scheduler that was killed, or whose nodes
    died), whole gangs by their jobs' creation, then single pods: those beyond a job's minimum, and those of no job.

    Args:
        nodes: all.
        pods: all that have not ended, other people's too; what was bound a moment ago counts as bound.
        jobs: that this scheduler serves.
        now: unix seconds.
        rule: by which a pod finds its node.
        namespaces: whose pods this scheduler binds; None: all.
    """
    decided = Decisions()
    ours = [pod for pod in pods if _is_ours(pod) and (namespaces is None or pod.namespace in namespaces)]
    found = group(jobs, pods, ours)
    names = {name for pod in ours for name in pod.requests}
    names.update(name for gang in found.gangs for name in gang.resources)
    decided.waits += [Wait(pod, f"there is no ElasticJob {pod.job} in {pod.namespace} (yet)") for pod in found.orphans]
    if not (found.gangs or found.singles):
        return decided
    floor = Floor(nodes, [pod for pod in pods if pod.node], sorted(names), rule)
    beyond = []
    for gang in sorted(found.gangs, key=lambda gang: not gang.begun):  # stable: by creation within both
        if gang.is_late(now):
            _give_back(gang, decided)
        else:
            beyond += _place_gang(gang, floor, decided)
    for pod in [*beyond, *found.singles]:
        _place_single(pod, floor, decided)
    ends = [gang.late_at for gang in found.gangs if gang.late_at is not None and gang.late_at > now]
    decided.again_at = min(ends, default=None)
    return decided


def _is_ours(pod: PodInfo) -> bool:
    return not pod.node and pod.scheduler == SCHEDULER and not (pod.gated or pod.deleting)


def _place_gang(gang: Gang, floor: Floor, decided: Decisions) -> list[PodInfo]:
    """All that is missing of a gang's minimum, or nothing.

    Returns:
        Its pods beyond the minimum, to be placed when all gangs have theirs.
    """
    pods = [pod for role in ROLES for pod in gang.pending[role]]
    if refusal := gang.refusal:
        decided.waits += [Wait(pod, refusal) for pod in pods]
        return []
    tasks = list(_missing(gang))
    claims = _claim_all(tasks, floor)
    if claims is None:
        reason = _why(gang, tasks, floor)
        decided.waits += [Wait(pod, reason) for pod in pods]
        return []
    placed = set()
    for task, claim in zip(tasks, claims, strict=True):
        node = floor.nodes[claim.node].name
        if task.pod is None:
            decided.reservations.append(Reservation(gang.job.id, task.role, node))
        else:
            placed.add(task.pod.uid)
            decided.bindings.append(Bind(task.pod, node))
    return [pod for pod in pods if pod.uid not in placed]


def _missing(gang: Gang) -> Iterator[_Task]:
    """Of the minimum, in the order of binding; pods that are there before those that are to come."""
    for role in ROLES:
        there = gang.pending[role][: gang.missing[role]]
        yield from (_Task(role, pod.requests, pod.constraints, pod) for pod in there)
        template = gang.template(role)
        for _ in range(gang.missing[role] - len(there)):
            yield _Task(role, template.requests, template.constraints, None)


def _claim_all(tasks: Sequence[_Task], floor: Floor) -> list[Claim] | None:
    """All or none; the larger ones first where the order of binding leaves no place for one."""
    for order in (list(range(len(tasks))), sorted(range(len(tasks)), key=lambda number: _size(tasks[number], floor))):
        claims: dict[int, Claim] = {}
        for number in order:
            claim = floor.claim(tasks[number].requests, tasks[number].constraints)
            if claim is None:
                for taken in claims.values():
                    floor.give_back(taken)
                break
            claims[number] = claim
        else:
            return [claims[number] for number in range(len(tasks))]
    return None


def _size(task: _Task, floor: Floor) -> float:
    """The more it takes of a node's resources, the lower."""
    largest = floor.largest
    return -max((amount / largest[name] for name, amount in task.requests.items() if largest.get(name)), default=0.0)


def _why(gang: Gang, tasks: Sequence[_Task], floor: Floor) -> str:
    """The first task of a gang that finds no place when the others have theirs."""
    claims = []
    reason = ""
    for task in tasks:
        claim = floor.claim(task.requests, task.constraints)
        if claim is None:
            reason = f"its {task.role}: {floor.why_not(task.requests, task.constraints)}"
            break
        claims.append(claim)
    for claim in claims:
        floor.give_back(claim)
    return f"{gang.job.id} starts whole ({gang.words}); {reason}"


def _place_single(pod: PodInfo, floor: Floor, decided: Decisions) -> None:
    if pod.constraints.unknown:
        decided.waits.append(Wait(pod, unknown(pod)))
        return
    claim = floor.claim(pod.requests, pod.constraints)
    if claim is None:
        decided.waits.append(Wait(pod, floor.why_not(pod.requests, pod.constraints)))
    else:
        decided.bindings.append(Bind(pod, floor.nodes[claim.node].name))


def _give_back(gang: Gang, decided: Decisions) -> None:
    reason = (
        f"{gang.job.id} was not whole ({gang.words}) within its gangTimeout of {gang.job.gang_seconds:g} s: "
        "its room is free for others until it fits whole"
    )
    decided.returns += [Return(pod, reason) for pod in gang.bound]
    decided.waits += [Wait(pod, reason) for role in ROLES for pod in gang.pending[role]]
