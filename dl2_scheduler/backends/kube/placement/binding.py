"""This module decides which pods go to which nodes now: whole gangs first, in the order of the queue. Pure."""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from dl2_scheduler.backends.kube.apiserver.objects import SCHEDULER, JobInfo, NodeInfo, PodInfo
from dl2_scheduler.backends.kube.placement.backfill import Backfill, starving, waited
from dl2_scheduler.backends.kube.placement.expected_pods import ExpectedPod, TargetRoom
from dl2_scheduler.backends.kube.placement.free_resources import FreeNodeResources, TaskPlacement
from dl2_scheduler.backends.kube.placement.gang_placement import GangTask, claim_all, claim_chosen, missing, why_not
from dl2_scheduler.backends.kube.placement.gangs import Gang, Groups, group, unknown
from dl2_scheduler.backends.kube.placement.pod_decisions import (
    NodeChoice,
    PodBinding,
    PodDecisions,
    PodReturn,
    PodWait,
    Reservation,
)
from dl2_scheduler.backends.kube.placement.policy_places import PolicyPlaces, seen_resources
from dl2_scheduler.backends.kube.placement.volumes import ClaimedVolume, ClaimKey, with_volumes
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement

_MOST_REASONS = 3
"""Why tasks of a job are where they are."""

NO_VOLUMES: Mapping[ClaimKey, ClaimedVolume] = MappingProxyType({})


def decide(
    nodes: Sequence[NodeInfo],
    pods: Sequence[PodInfo],
    jobs: Sequence[JobInfo],
    now: float,
    rule: NodeRule,
    namespaces: Container[str] | None = None,
    volumes: Mapping[ClaimKey, ClaimedVolume] = NO_VOLUMES,
    policy: GuardedPlacement | None = None,
    expected: Sequence[ExpectedPod] = (),
) -> PodDecisions:
    """Place what is not bound; `_place` says in which order.

    Args:
        nodes: all.
        pods: all that have not ended, other people's too; what was bound a moment ago counts as bound.
        jobs: that this scheduler serves.
        now: unix seconds.
        rule: by which a pod finds its node.
        namespaces: whose pods this scheduler binds; None: all.
        volumes: of the claims that pods name which it is to bind.
        policy: says where workers and servers go, instead of the rule; None: the rule does.
        expected: pods that are to come where tasks are being moved to: their room is kept.
    """
    decided = PodDecisions()
    bound = [pod for pod in pods if pod.node]
    ours = with_volumes(to_bind(pods, namespaces), bound, volumes)
    found = group(jobs, pods, ours)
    decided.waits += [
        PodWait(pod, f"there is no ElasticJob {pod.job} in {pod.namespace} (yet)") for pod in found.orphans
    ]
    if found.gangs or found.leaving or found.singles:
        neighbours = _neighbours_matter(ours, bound, found.gangs)
        names = _resources(ours, found.gangs) | (seen_resources(nodes) if policy else set())
        resources = FreeNodeResources(nodes, bound, sorted(names), rule, neighbours)
        backfill = partial(Backfill, nodes, bound, {job.key for job in jobs}, resources)
        places = PolicyPlaces(policy, nodes, bound, jobs, resources) if policy else None
        targets = TargetRoom(resources, jobs, bound, expected)
        _place(found, _Placing(resources, decided, targets, places), backfill, now)
        ends = [gang.late_at for gang in found.gangs if gang.late_at is not None and gang.late_at > now]
        decided.again_at = min(ends, default=None)
    return decided


def _place(groups: Groups, placing: "_Placing", backfill: Callable[[], Backfill], now: float) -> None:
    """Place all, one after the other.

    In this order: the missing part of gangs that are bound in part (of a scheduler that was killed, or whose nodes
    died), what jobs need to save themselves, gangs that have waited too long, the longest first, whole gangs by their
    jobs' creation, then single pods: those beyond a job's minimum, and those of no job. The first that has waited too
    long and does not fit keeps room from all that come after it; see `backfill`. What is bound in part and has waited
    too long gives its room back, unless the rest fits now.
    """
    begun = [gang for gang in groups.gangs if gang.begun]
    short = [gang for gang in begun if (gang.is_late(now) and gang.held_up) or not placing.place(gang)]
    late = [gang for gang in short if gang.is_late(now)]
    stuck = [gang for gang in short if gang not in late]
    placing.place_singles(groups.leaving)
    fresh = [gang for gang in groups.gangs if not gang.begun]
    if waiting := starving([*stuck, *fresh], now):
        placing.serve(waiting, backfill(), now)
    for gang in fresh:
        placing.place(gang)
    for gang in [*stuck, *fresh]:
        placing.wait(gang)
    for gang in late:
        placing.give_back(gang)
    placing.place_singles([*placing.beyond, *groups.singles])


def to_bind(pods: Sequence[PodInfo], namespaces: Container[str] | None) -> list[PodInfo]:
    """Return the pods that this scheduler is to bind, of all; see `decide`."""
    return [
        pod
        for pod in pods
        if not pod.node
        and pod.scheduler == SCHEDULER
        and not (pod.gated or pod.deleting)
        and (namespaces is None or pod.namespace in namespaces)
    ]


def _resources(ours: Sequence[PodInfo], gangs: Sequence[Gang]) -> set[str]:
    """Return the names of the resources that are asked for."""
    asked = {name for pod in ours for name in pod.requests}
    return asked.union(*(gang.resources for gang in gangs))


def _neighbours_matter(ours: Sequence[PodInfo], bound: Sequence[PodInfo], gangs: Sequence[Gang]) -> bool:
    """Return whether a pod to bind asks about pods beside it, or one that is there keeps pods away."""
    to_come = [role for gang in gangs for role in (gang.job.workers, gang.job.servers)]
    asks = any(task.constraints.neighbours for each in (ours, to_come) for task in each)
    return asks or any(pod.constraints.neighbours and pod.constraints.neighbours.apart for pod in bound)


class _Placing:
    """A `_Placing` places gangs and pods one after the other.

    Args:
        resources: what is free on the nodes.
        decided: takes what is decided.
        targets: where tasks are being moved to.
        places: of the policy; None: the rule decides.

    Attributes:
        beyond: pods beyond the minimum of gangs that have theirs, to be placed when all have.
    """

    def __init__(
        self, resources: FreeNodeResources, decided: PodDecisions, targets: TargetRoom, places: PolicyPlaces | None
    ):
        self.resources = resources
        self.beyond: list[PodInfo] = []
        self._decided, self._targets, self._places = decided, targets, places
        self._said: set[tuple[str, str]] = set()  # jobs whose gangs are placed, or told why not
        self._reasons: dict[tuple[str, str], list[str]] = {}  # of jobs' places

    def serve(self, waiting: Sequence[Gang], backfill: Backfill, now: float) -> None:
        """Place gangs that have waited too long; the first that does not fit keeps the room where it will.

        Args:
            waiting: the gangs, the longest waiting first.
            backfill: says where one will fit.
            now: unix seconds.
        """
        for gang in waiting:
            if self.place(gang, may_wait=False):
                continue
            claims = backfill.room(gang)
            tasks, reason = missing(gang), self._why_not(gang)
            if claims is None:
                self._wait(gang, f"{reason}; it would not fit if all other jobs ended, so nothing is kept for it")
                continue
            long = waited(now - (gang.waits_since or now))
            where = self.resources.names_of(claim.node for claim in claims)
            self._wait(gang, f"{reason}; it has waited {long}: room on {where} is kept for it")
            self.resources.keep(claims, f"{gang.job.id}, which has waited {long}")
            for task, claim in zip(tasks, claims, strict=True):
                self._reserve(gang, task, claim)
            return

    def place(self, gang: Gang, may_wait: bool = True) -> bool:
        """Place all that is missing of a gang's minimum, or nothing.

        Args:
            gang: which.
            may_wait: a policy may let it wait although it fits; not where it holds some of its nodes already.

        Returns:
            Whether there is no more to be said about it.
        """
        if gang.job.key in self._said:
            return True
        if refusal := gang.refusal:
            self._wait(gang, refusal)
            return True
        tasks = missing(gang)
        moved = self._targets.give(gang.job.key, tasks)
        claims = claim_chosen(tasks, self.resources, moved) if moved else None
        if claims is None:
            moved, claims = {}, claim_all(tasks, self.resources)
        if claims is None:
            self._targets.keep_again()
            return False
        if self._places is not None and (claims := self._chosen(gang, tasks, claims, moved, may_wait)) is None:
            self._wait(gang, f"{gang.job.id} fits, and the placement policy {self._places.name} lets it wait")
            return True
        self._said.add(gang.job.key)
        placed = set()
        for task, claim in zip(tasks, claims, strict=True):
            if task.pod is None:
                self._reserve(gang, task, claim)
            else:
                placed.add(task.pod.uid)
                self._bind(task.pod, claim)
        self.beyond += [pod for pod in gang.waiting if pod.uid not in placed]
        return True

    def _chosen(
        self,
        gang: Gang,
        tasks: Sequence[GangTask],
        claims: list[TaskPlacement],
        moved: Mapping[int, int],
        may_wait: bool,
    ) -> list[TaskPlacement] | None:
        """Return the places that the policy chooses for tasks, or the rule's; None: the policy lets them wait.

        Args:
            gang: whose.
            tasks: all that it misses.
            claims: the places that they have, by the rule or as they are moved.
            moved: the node that a task is moved to, by its index: the policy is asked about the others.
            may_wait: see `place`.
        """
        assert self._places is not None
        for number in moved:
            self._moved(gang.job, tasks[number].role, claims[number].node)
        rest = [number for number in range(len(tasks)) if number not in moved]
        left = [tasks[number] for number in rest]
        for number in rest:
            self.resources.give_back(claims[number])
        chosen = self._places.choose(gang.job, left)
        if chosen is None and may_wait and not gang.begun and not moved:
            return None
        found = claim_chosen(left, self.resources, chosen.nodes) if chosen else None
        if found is None:
            why = "its choice does not fit what else the pods ask for" if chosen else "it would let it wait"
            self._say(gang.job.key, f"placed without {self._places.name}: {why}")
            before = {number: claims[each].node for number, each in enumerate(rest)}
            found = claim_chosen(left, self.resources, before) or claim_all(left, self.resources)
        elif chosen:
            self._say(gang.job.key, chosen.reason)
        if found is None:
            return None
        for number, claim in zip(rest, found, strict=True):
            self._places.put(gang.job.key, tasks[number].role, claim.node)
            claims[number] = claim
        return claims

    def _moved(self, job: JobInfo, role: str, node: int) -> None:
        """Note and say that a task goes where it is moved to."""
        assert self._places is not None
        self._places.put(job.key, role, node)
        self._say(job.key, f"{self.resources.nodes[node].name}, where it was moved to")

    def _say(self, job: tuple[str, str], reason: str) -> None:
        """Say why tasks of a job are where they are; of many sentences the first ones."""
        said = self._reasons.setdefault(job, [])
        if reason and reason not in said:
            said.append(reason)
            more = len(said) - _MOST_REASONS
            self._decided.placed[job] = "; ".join(said[:_MOST_REASONS]) + f"; and {more} more" * (more > 0)

    def wait(self, gang: Gang) -> None:
        """Say why a gang is not placed, if that has not been said."""
        if gang.job.key not in self._said:
            self._wait(gang, self._why_not(gang))

    def _why_not(self, gang: Gang) -> str:
        """Return why a gang finds no place, for people: what is kept for its own tasks is not the reason."""
        tasks = missing(gang)
        self._targets.give(gang.job.key, tasks)
        reason = why_not(gang, tasks, self.resources)
        self._targets.keep_again()
        return reason

    def give_back(self, gang: Gang) -> None:
        """Delete what is bound of a gang that was not whole in time."""
        reason = (
            f"{gang.job.id} was not whole ({gang.words}) within its gangTimeout of {gang.job.gang_seconds:g} s: "
            "its room is free for others until it fits whole"
        )
        self._decided.returns += [PodReturn(pod, reason) for pod in gang.bound]
        self._decided.waits += [PodWait(pod, reason) for pod in gang.waiting]

    def place_singles(self, pods: Sequence[PodInfo]) -> None:
        """Place each pod where it fits."""
        for pod in pods:
            if refusal := unknown(pod) if pod.constraints.unknown else pod.refusal:
                self._decided.waits.append(PodWait(pod, refusal))
            elif claim := self._claim(pod):
                self._bind(pod, claim)
            else:
                self._decided.waits.append(PodWait(pod, self.resources.why_not(pod)))

    def _claim(self, pod: PodInfo) -> TaskPlacement | None:
        """Put a pod on the node that it was moved to or that the policy chooses; else where the rule wants it."""
        job = self._places.job_of(pod) if self._places is not None else None
        if self._places is None or job is None:
            return self.resources.claim(pod)
        task = GangTask(pod.role, pod.requests, pod.constraints, pod.namespace, pod.labels, pod)
        if moved := self._targets.give(job.key, [task]):
            self._moved(job, pod.role, moved[0])
            return self.resources.claim_on(pod, moved[0])
        if not self.resources.fitting(pod).any():
            return None
        chosen = self._places.choose(job, [task])
        claim = self.resources.claim_on(pod, chosen.nodes[0]) if chosen else None
        if claim is not None and chosen is not None:
            self._say(job.key, chosen.reason)
        claim = claim or self.resources.claim(pod)
        if claim is not None:
            self._places.put(job.key, pod.role, claim.node)
        return claim

    def _bind(self, pod: PodInfo, claim: TaskPlacement) -> None:
        node = self.resources.nodes[claim.node].name
        if not pod.unmade:
            self._decided.bindings.append(PodBinding(pod, node))
            return
        self._decided.choices += [NodeChoice(pod, name, node) for name in pod.unmade]
        self._decided.waits.append(PodWait(pod, f"the volume of its claim {pod.unmade[0]} is being made for it"))

    def _wait(self, gang: Gang, reason: str) -> None:
        self._said.add(gang.job.key)
        self._decided.waits += [PodWait(pod, reason) for pod in gang.waiting]

    def _reserve(self, gang: Gang, task: GangTask, claim: TaskPlacement) -> None:
        node = self.resources.nodes[claim.node].name
        self._decided.reservations.append(Reservation(gang.job.id, task.role, node))
