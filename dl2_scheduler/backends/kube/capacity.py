"""This module says what of the nodes a policy may hand out, and what each job's task takes of it. Pure."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, NodeInfo, PodInfo, RoleInfo
from dl2_scheduler.backends.kube.apiserver.quantities import PODS, most_of
from dl2_scheduler.backends.kube.placement.free_resources import FreeNodeResources, Requests, TaskPlacement
from dl2_scheduler.backends.kube.placement.gangs import COORDINATOR_REQUESTS, coordinator_of
from dl2_scheduler.backends.kube.placement.node_constraints import Constraints
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node
from k8s.foundation.names import COORDINATOR, SERVER, WORKER

_ALWAYS = ("cpu", "memory", PODS)
_ENOUGH = 1e6  # of a resource that only says where a task may go: no node runs out of it


class TasksAsMade:
    """`TasksAsMade` know what the tasks of jobs take as their pods were made last.

    Whoever admits pods may add to them: the defaults of a LimitRange, a mesh's container, a RuntimeClass's overhead.
    That is remembered of a job whose pods are gone: by its template it would fit again, not fit by its pods, and so be
    granted and lose the same for ever, while its neighbours are scaled to and fro.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Requests] = {}  # by a job's uid, and the role

    def see(self, jobs: Sequence[JobInfo], pods: Sequence[PodInfo]) -> list[JobInfo]:
        """Return jobs whose tasks take what their pods do, or did, where that is more than their templates say.

        Args:
            jobs: that the policy decides about; others are forgotten.
            pods: all that have not ended.
        """
        owners, there = {job.key: job for job in jobs}, dict[tuple[str, str], Requests]()
        for pod in pods:
            owner = owners.get(pod.key)
            if owner is not None and pod.created >= owner.created:  # not of an earlier job of its name
                at = owner.uid, pod.role
                there[at] = most_of(there.get(at, {}), pod.requests)
        uids = {job.uid for job in jobs}
        self._last = {at: requests for at, requests in (self._last | there).items() if at[0] in uids}
        return [
            replace(job, workers=self._made(job, WORKER, job.workers), servers=self._made(job, SERVER, job.servers))
            for job in jobs
        ]

    def _made(self, job: JobInfo, name: str, role: RoleInfo) -> RoleInfo:
        found = self._last.get((job.uid, name))
        return replace(role, requests=most_of(role.requests, found)) if found else role


@dataclass(frozen=True)
class Demands:
    """`Demands` say what the tasks of a job take.

    Attributes:
        worker: by resource.
        server: by resource.
    """

    worker: Requests
    server: Requests


@dataclass(frozen=True)
class Capacity:
    """A `Capacity` is a cluster as a policy sees it.

    Attributes:
        nodes: those where a task of some job may go.
        demands: of each job, in the order that was asked in.
    """

    nodes: tuple[Node, ...]
    demands: tuple[Demands, ...]


def capacity(nodes: Sequence[NodeInfo], pods: Sequence[PodInfo], jobs: Sequence[JobInfo]) -> Capacity:
    """Return what is left of the nodes by all that the policy does not decide about.

    That is: pods of others, pods of jobs that are scaled by hand, and coordinators, also those of jobs that could begin
    now. On a node that takes nothing new, what the policy's jobs have there is theirs still. Where jobs' tasks may not
    go to the same nodes, each such set of nodes is a resource that only they have.

    Args:
        nodes: all.
        pods: all that have not ended.
        jobs: that the policy decides about, by creation, as `TasksAsMade` have them.
    """
    names = {*_ALWAYS, *(name for job in jobs for role in (job.workers, job.servers) for name in role.requests)}
    ours = {job.key for job in jobs}
    tasks = [pod for pod in pods if pod.node and pod.key in ours and pod.role != COORDINATOR]
    rest = [pod for pod in pods if pod.node and not (pod.key in ours and pod.role != COORDINATOR)]
    kinds = {role.constraints for job in jobs for role in (job.workers, job.servers)}
    kept = FreeNodeResources(nodes, rest, sorted(names), NodeRule.SPREAD)
    open_to = {kind: kept.may(kind) for kind in kinds}
    anywhere = np.logical_or.reduce(list(open_to.values())) if kinds else np.ones(len(nodes), dtype=bool)
    stays = _held(nodes, tasks, kept.names)
    free = np.where(anywhere[:, None], np.maximum(kept.free, 0.0), stays)
    free = np.maximum(free - _coordinators(nodes, pods, jobs, free, kept.names), 0.0)  # they fit but for rounding
    shown = np.flatnonzero(anywhere | (stays > 0).any(axis=1))
    sets = _Sets({kind: open_to[kind][shown] for kind in kinds})
    made = tuple(
        Node(nodes[number].name, {**dict(zip(kept.names, free[number].tolist(), strict=True)), **sets.of_node(index)})
        for index, number in enumerate(shown)
    )
    return Capacity(made, tuple(Demands(sets.of_task(job.workers), sets.of_task(job.servers)) for job in jobs))


def _held(nodes: Sequence[NodeInfo], tasks: Sequence[PodInfo], names: Sequence[str]) -> NDArray[np.float64]:
    """Return what tasks of the policy's jobs hold on nodes that live, (nodes, resources)."""
    index = {node.name: number for number, node in enumerate(nodes) if node.ready}
    held = np.zeros((len(nodes), len(names)))
    for pod in tasks:
        if pod.node in index:
            held[index[pod.node]] += [pod.requests.get(name, 0.0) for name in names]
    return held


def _coordinators(
    nodes: Sequence[NodeInfo],
    pods: Sequence[PodInfo],
    jobs: Sequence[JobInfo],
    free: NDArray[np.float64],
    names: Sequence[str],
) -> NDArray[np.float64]:
    """Return what coordinators take that are not there yet, of jobs whose minimum fits, (nodes, resources)."""
    there = {pod.key: pod for pod in pods if pod.role == COORDINATOR and pod.node}
    absent = [number for number, job in enumerate(jobs) if job.key not in there]
    kept = np.zeros_like(free)
    if not absent:
        return kept
    like = max((pod.requests for pod in there.values()), key=lambda each: each.get("cpu", 0.0), default=None)
    left = [
        replace(node, allocatable=dict(zip(names, free[number].tolist(), strict=True)))
        for number, node in enumerate(nodes)
    ]
    resources = FreeNodeResources(left, [], names, NodeRule.SPREAD)
    for job in jobs[: absent[-1] + 1]:
        needs = [coordinator_of(job, like or COORDINATOR_REQUESTS)] if job.key not in there else []
        needs += [job.servers] * job.servers.min + [job.workers] * job.workers.min
        claims = _claim_all(resources, needs)
        if claims and job.key not in there:
            kept[claims[0].node] += claims[0].demand
    return kept


def _claim_all(resources: FreeNodeResources, needs: Sequence[RoleInfo]) -> list[TaskPlacement]:
    """Place all tasks, or none: then return []; packed where the rule finds no places, as gangs are."""
    return _claim(resources, needs, packed=False) or _claim(resources, needs, packed=True)


def _claim(resources: FreeNodeResources, needs: Sequence[RoleInfo], packed: bool) -> list[TaskPlacement]:
    claims: list[TaskPlacement] = []
    for role in needs:
        claim = resources.claim(role, packed=packed)
        if claim is None:
            for taken in claims:
                resources.give_back(taken)
            return []
        claims.append(claim)
    return claims


class _Sets:
    """A `_Sets` shows sets of nodes, to which some tasks alone may go, as resources.

    A resource has its name from what tasks ask of nodes, in each slot the same: histories keep the demands of jobs.

    Args:
        open_to: the nodes that each kind of task may go to, (nodes,).
    """

    def __init__(self, open_to: dict[Constraints, NDArray[np.bool_]]):
        self._rows: dict[str, NDArray[np.bool_]] = {}
        self._of: dict[Constraints, str] = {}
        for kind, where in open_to.items():
            if not where.all():
                self._of[kind] = f"allowed-{zlib.crc32(repr(kind.of_nodes).encode()):08x}"
                self._rows[self._of[kind]] = where

    def of_node(self, index: int) -> dict[str, float]:
        """Return what a node has of these resources."""
        return {name: _ENOUGH * float(row[index]) for name, row in self._rows.items()}

    def of_task(self, role: RoleInfo) -> Requests:
        """Return what a task takes, with these resources."""
        return {**role.requests, self._of[role.constraints]: 1.0} if role.constraints in self._of else role.requests
