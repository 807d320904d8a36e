"""This module remembers which pods are expected on which nodes, as tasks move there, and keeps the room for them.

From the moment at which the old pod is told to go until the next one is bound, nobody else may have the room at the
target: a drain takes its time, and the job would stand without its task if another pod came first.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, PodInfo
from dl2_scheduler.backends.kube.placement.free_resources import FreeNodeResources, TaskPlacement
from dl2_scheduler.backends.kube.placement.gang_placement import GangTask
from dl2_scheduler.cluster.durations import in_words, left
from k8s.foundation.names import SERVER

Key = tuple[str, str]

EXPECTED_SECONDS = 300.0
"""For which room is kept; longer than the pods of most jobs take to drain, and to be made anew."""


@dataclass(frozen=True)
class ExpectedPod:
    """An `ExpectedPod` is to be bound to a node, in the place of one that leaves another node.

    Attributes:
        job: namespace and name.
        uid: of the job: a later one of its name is another.
        role: of both pods.
        node: where it is to go.
        leaves: uid of the pod that goes.
        until: unix seconds, after which it is expected no longer.
    """

    job: Key
    uid: str
    role: str
    node: str
    leaves: str
    until: float

    def is_expected(self, now: float) -> bool:
        """Return whether it still is; `now`: unix seconds, by a clock that may have been set back since."""
        return left(self.until - EXPECTED_SECONDS, EXPECTED_SECONDS, now) > 0

    @property
    def why_not(self) -> str:
        """Why it is not expected any more, for people."""
        kept = in_words(EXPECTED_SECONDS)
        return f"the room on {self.node} that was kept for its {self.role} is free again: none came within {kept}"


class ExpectedPods:
    """`ExpectedPods` are those that are to be bound to a node, as a task was moved there. Safe from several threads.

    Args:
        now: unix seconds.
    """

    def __init__(self, now: Callable[[], float]):
        self._now = now
        self._lock = threading.Lock()
        self._all: list[ExpectedPod] = []

    def add(self, job: JobInfo, pod: PodInfo, node: str) -> None:
        """Expect another pod on a node.

        Args:
            job: whose.
            pod: that is about to go.
            node: where the other is to go.
        """
        with self._lock:
            self._all.append(ExpectedPod(job.key, job.uid, pod.role, node, pod.uid, self._now() + EXPECTED_SECONDS))

    def stays(self, pod: PodInfo) -> None:
        """Expect no pod in the place of this one: it does not go."""
        with self._lock:
            self._all = [each for each in self._all if each.leaves != pod.uid]

    def bound(self, pod: PodInfo, node: str) -> None:
        """Expect a pod of that job and role no more on this node, or, where it went elsewhere, on the first one."""
        with self._lock:
            own = [each for each in self._all if (each.job, each.role) == (pod.key, pod.role)]
            if own:
                self._all.remove(next((each for each in own if each.node == node), own[0]))

    def given_up(self) -> list[ExpectedPod]:
        """Forget those that have not come in time, and return them."""
        with self._lock:
            now = self._now()
            late = [each for each in self._all if not each.is_expected(now)]
            self._all = [each for each in self._all if each.is_expected(now)]
            return late

    def all(self) -> tuple[ExpectedPod, ...]:
        """Return those that are expected, in the order in which they began to be."""
        with self._lock:
            return tuple(each for each in self._all if each.is_expected(self._now()))


@dataclass(frozen=True)
class _Kept:
    """Room that is `_Kept` for a pod of a job."""

    job: JobInfo
    role: str
    claim: TaskPlacement


class TargetRoom:
    """A `TargetRoom` keeps the room of pods that are expected from all others, while gangs are placed.

    Nothing is kept for what a job is not to have any more.

    Args:
        resources: what is free on the nodes; the room is taken from it.
        jobs: that this scheduler serves.
        bound: pods that have a node.
        expected: of their jobs.
    """

    def __init__(
        self,
        resources: FreeNodeResources,
        jobs: Iterable[JobInfo],
        bound: Sequence[PodInfo],
        expected: Sequence[ExpectedPod],
    ):
        self._resources = resources
        self._kept: list[_Kept] = []
        self._given: list[_Kept] = []
        known = {job.key: job for job in jobs} if expected else {}
        expected = [each for each in expected if each.job in known and known[each.job].uid == each.uid]
        leaves = {each.leaves for each in expected}
        for key, role in dict.fromkeys((each.job, each.role) for each in expected):
            stay = [pod for pod in bound if (pod.key, pod.role) == (key, role) and not pod.deleting]
            lacks = _wanted(known[key], role) - sum(pod.uid not in leaves for pod in stay)
            own = [each.node for each in expected if (each.job, each.role) == (key, role)]
            for node in own[: max(0, lacks)]:
                self._keep(known[key], role, node)

    def give(self, job: Key, tasks: Sequence[GangTask]) -> Mapping[int, int]:
        """Return the room that is kept for tasks, which are about to be placed, to them.

        Args:
            job: namespace and name.
            tasks: of the job; the first of a role get the targets of that role.

        Returns:
            The node's index for those that may go there now, by the task's index.
        """
        self._given = []
        taken: dict[int, int] = {}
        for number, task in enumerate(tasks):
            kept = next((each for each in self._kept if (each.job.key, each.role) == (job, task.role)), None)
            if kept is not None:
                self._kept.remove(kept)
                self._given.append(kept)
                self._resources.release(kept.claim)
                taken[number] = kept.claim.node
        return {number: node for number, node in taken.items() if self._resources.fitting(tasks[number])[node]}

    def keep_again(self) -> None:
        """Keep what was given last: the tasks were not placed."""
        for each in self._given:
            self._keep(each.job, each.role, self._resources.nodes[each.claim.node].name)
        self._given = []

    def _keep(self, job: JobInfo, role: str, node: str) -> None:
        like = job.servers if role == SERVER else job.workers
        claim = self._resources.keep_on(like, node, f"{job.id}, of which a {role} moves there")
        if claim is not None:
            self._kept.append(_Kept(job, role, claim))


def _wanted(job: JobInfo, role: str) -> int:
    """Return how many tasks of a role a job is to have."""
    if not job.wants_pods:
        return 0
    if not job.by_scheduler or job.allotment is None:
        return (job.servers if role == SERVER else job.workers).replicas
    return job.allotment.servers if role == SERVER else job.allotment.workers
