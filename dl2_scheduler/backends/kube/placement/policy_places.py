"""This module asks a placement policy on which nodes the tasks of a gang go, of those that their pods may go to.

A node is one group: a pod is bound to a node, and which socket it runs on is the kubelet's say.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, NodeInfo, PodInfo
from dl2_scheduler.backends.kube.placement.free_resources import FreeNodeResources, Requests
from dl2_scheduler.backends.kube.placement.gang_placement import GangTask
from dl2_scheduler.cluster.hardware.live_view import Amounts, LiveJob, LiveNodes, live_view, plain_hardware
from dl2_scheduler.cluster.hardware.machines import CPU, Machines
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES, Job
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.snapshot import JobState
from k8s.foundation.names import SERVER, WORKER

_ROLES = (WORKER, SERVER)
_GPU_ENDING = "/gpu"
"""Of the resources that are GPUs, as in nvidia.com/gpu."""

Key = tuple[str, str]


@dataclass(frozen=True)
class NodesChosen:
    """A `NodesChosen` is what a policy says about the tasks of one gang.

    Attributes:
        nodes: the index of the node of each task, by the task's index; coordinators go where the rule puts them.
        reason: for people.
    """

    nodes: Mapping[int, int]
    reason: str


@dataclass
class _Places:
    """These `_Places` are the nodes of a job's workers, and of its servers."""

    of: dict[str, list[int]] = field(default_factory=lambda: {role: [] for role in _ROLES})


class PolicyPlaces:
    """A `PolicyPlaces` asks the policy while gangs are being placed one after the other.

    Args:
        policy: decides.
        nodes: all.
        bound: pods that have a node, whosever they are.
        jobs: that this scheduler serves.
        resources: what is free on the nodes.
    """

    def __init__(
        self,
        policy: GuardedPlacement,
        nodes: Sequence[NodeInfo],
        bound: Sequence[PodInfo],
        jobs: Sequence[JobInfo],
        resources: FreeNodeResources,
    ):
        self._policy, self._resources = policy, resources
        self._names = tuple(node.name for node in nodes)
        amounts = [_amounts(node.allocatable) for node in nodes]
        self._machines = Machines(tuple(plain_hardware(math.ceil(cpus), gpus) for cpus, gpus in amounts))
        self._jobs = {job.key: job for job in jobs}
        self._places: dict[Key, _Places] = {}
        index = {name: number for number, name in enumerate(self._names)}
        for pod in bound:
            if pod.key in self._jobs and pod.role in _ROLES and pod.node in index:
                self.put(pod.key, pod.role, index[pod.node])

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self._policy.name

    def put(self, job: Key, role: str, node: int) -> None:
        """Note where a task of a job is, or will be.

        Args:
            job: namespace and name.
            role: of the task; a coordinator is not looked at.
            node: its index.
        """
        if role in _ROLES and job in self._jobs:
            self._places.setdefault(job, _Places()).of[role].append(node)

    def job_of(self, pod: PodInfo) -> JobInfo | None:
        """Return the job of which a pod is a worker or a server; None: it is no such pod."""
        return self._jobs.get(pod.key) if pod.role in _ROLES else None

    def choose(self, job: JobInfo, tasks: Sequence[GangTask]) -> NodesChosen | None:
        """Return where tasks of a job go; None: the policy lets them wait.

        Args:
            job: whose.
            tasks: all that it misses now.
        """
        missing = {role: [number for number, task in enumerate(tasks) if task.role == role] for role in _ROLES}
        if not any(missing.values()):
            return NodesChosen({}, "")
        view, index = self._view(job, tasks, missing)
        answer = self._policy.place(view, self._names)
        if index not in answer.places.groups:
            return None
        groups = answer.places.groups[index]
        nodes = {
            number: int(node)
            for role, of_role in zip(_ROLES, groups, strict=True)
            for number, node in zip(missing[role], of_role, strict=True)
        }
        return NodesChosen(nodes, answer.reasons[index])

    def running(self, steady: Collection[Key]) -> tuple[PlacementView, list[JobInfo]]:
        """Return what a policy sees of the tasks that run, and the jobs in its order: none misses anything.

        Args:
            steady: jobs that train and are about to change in nothing; others have no speed.
        """
        here = sorted((self._jobs[key] for key in self._places), key=lambda job: (job.created, job.key))
        seen = [self._seen(job, {}) for job in here]
        seen = [each if job.key in steady else replace(each, rate=0.0) for job, each in zip(here, seen, strict=True)]
        view = live_view(0.0, LiveNodes(self._names, self._machines, self._free()), seen)
        fitting = [[self._resources.fitting(role) for role in (job.workers, job.servers)] for job in here]
        allowed = np.array(fitting, dtype=np.bool_).reshape(len(here), len(_ROLES), len(self._names))
        return replace(view, allowed=allowed), here

    def _view(
        self, job: JobInfo, tasks: Sequence[GangTask], missing: Mapping[str, Sequence[int]]
    ) -> tuple[PlacementView, int]:
        """Return what the policy sees, and the index of the job in it: others miss nothing."""
        here = sorted({*self._places, job.key}, key=lambda key: (self._jobs[key].created, key))
        seen = [self._seen(self._jobs[key], missing if key == job.key else {}) for key in here]
        nodes = LiveNodes(self._names, self._machines, self._free())
        view, index = live_view(0.0, nodes, seen), here.index(job.key)
        demand = view.demand.copy()
        allowed = np.ones((len(here), len(_ROLES), len(self._names)), dtype=np.bool_)
        for role, name in enumerate(_ROLES):
            for number in missing[name]:
                allowed[index, role] &= self._resources.fitting(tasks[number])
                demand[index, role] = _amounts(tasks[number].requests)
        return replace(view, demand=demand, allowed=allowed), index

    def _seen(self, job: JobInfo, missing: Mapping[str, Sequence[int]]) -> LiveJob:
        own = self._places.get(job.key, _Places())
        count = (len(missing.get(WORKER, ())), len(missing.get(SERVER, ())))
        demand = (_amounts(job.workers.requests), _amounts(job.servers.requests))
        return LiveJob(
            _state_of(job), 0, demand, (own.of[WORKER], own.of[SERVER]), count, job.status.samples_per_second
        )

    def _free(self) -> list[Amounts]:
        rows = [dict(zip(self._resources.names, row, strict=True)) for row in self._resources.free.tolist()]
        return [_amounts(row) for row in rows]


def seen_resources(nodes: Sequence[NodeInfo]) -> set[str]:
    """Return the names of what a policy sees of nodes: cores and GPUs, asked for or not."""
    return {CPU} | {name for node in nodes for name in node.allocatable if name.endswith(_GPU_ENDING)}


def _amounts(requests: Requests) -> Amounts:
    return requests.get(CPU, 0.0), sum(amount for name, amount in requests.items() if name.endswith(_GPU_ENDING))


def _state_of(job: JobInfo) -> JobState:
    """Return a job as a placement policy sees it."""
    told = job.status
    seen = Job(
        job.id,
        job.created,
        job.model,
        job.epochs or 1.0,
        told.samples_per_epoch or UNKNOWN_SAMPLES,
        job.workers.requests,
        job.servers.requests,
        job.workers.max,
        job.servers.max,
        job.workers.min,
        job.servers.min,
    )
    seen = seen if job.has_servers else seen.without_servers()
    return JobState(seen, told.epoch, 0, told.workers, told.servers, told.phase == "Starting")
