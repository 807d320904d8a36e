"""This module says what an agent of the graph scheduler reads: its partition's graph, and a task that needs a place.

Graphs are read anew for each job, own tasks of a job beside them for each task: what others do does not change while a
job is placed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.policies.learnt.graph.edge_conv import F32
from dl2_scheduler.policies.learnt.graph.pod_graphs import ClusterGraphs, PodGraph, WiredGraph
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.greedy_fill import remaining_work

KINDS = 3  # of vertices
NEAR = 10
"""Numbers that say what of a job is near a group: own tasks by role in it, in its node, its rack and elsewhere, and
what the group would have left."""
_FLOWS = 256  # numbers of flows of a job
_CPUS, _GPUS = 16.0, 4.0
_HOURS = 8 * 3600.0


def vertex_width(models: int) -> int:
    """Return how many numbers describe a vertex: its kind, tasks by model and role, what it has, and what is free."""
    return KINDS + 2 * models + 4


def task_width(models: int) -> int:
    """Return how many numbers describe a task and its job."""
    return models + 10


@dataclass(frozen=True)
class TaskInputs:
    """These `TaskInputs` are what an agent reads for one task, beside its graphs.

    Attributes:
        pod: the agent's partition.
        job: index of the job in the view.
        role: of the task.
        near: see `NEAR`, of each of its groups, (groups, NEAR).
        task: of the task and its job, (task_width,).
        fits: groups that the task fits, (groups,).
        forwards: partitions that the job may be forwarded to, (partitions,).
        waits: whether the job may wait.
    """

    pod: int
    job: int
    role: int
    near: F32
    task: F32
    fits: NDArray[np.bool_]
    forwards: NDArray[np.bool_]
    waits: bool


class Watched:
    """A `Watched` cluster keeps what graphs say of it while jobs are placed.

    Args:
        draft: of the placement; a job of a model that the network does not know has the number -1 there.
        graphs: of the cluster.

    Attributes:
        draft: of the placement.
        graphs: of the cluster.
        flows: of each link, (links,).
        rows: of each group, (groups, vertex_width).
        used: part of each group's GPUs that is in use, (groups,).
        versions: of each partition: jobs that have got places there.
    """

    def __init__(self, draft: Draft, graphs: ClusterGraphs):
        self.draft, self.graphs = draft, graphs
        view, models = draft.view, len(draft.view.models)
        placed = view.placed
        self.flows: Floats = _flows(view, placed.job, placed.role, placed.group)
        self.rows: F32 = np.zeros((len(draft.free), vertex_width(models)), dtype=np.float32)
        kind = KINDS + 2 * placed.model[placed.job] + placed.role
        known = placed.model[placed.job] >= 0  # nobody feels tasks of a model that the network does not know
        np.add.at(self.rows, (placed.group[known], kind[known]), 1.0)
        self.rows[:, 0] = 1.0
        self.rows[:, -4:-2] = view.machines.capacity / (_CPUS, _GPUS)
        self.rows[:, -2:] = draft.free / (_CPUS, _GPUS)
        self._gpus = np.maximum(view.machines.capacity[:, 1], 1.0)
        self.used: Floats = 1.0 - draft.free[:, 1] / self._gpus
        self.versions = [0] * len(graphs.pods)

    def take(self, job: int) -> None:
        """Take note of a job that has got its places."""
        view, roles = self.draft.view, self.draft.groups[job]
        role = np.repeat([WORKER, SERVER], [len(each) for each in roles])
        group = np.array([*roles[WORKER], *roles[SERVER]], dtype=np.int64)
        if (model := int(view.placed.model[job])) >= 0:
            np.add.at(self.rows, (group, KINDS + 2 * model + role), 1.0)
        self.rows[group, -2:] = self.draft.free[group] / (_CPUS, _GPUS)
        self.used[group] = 1.0 - self.draft.free[group, 1] / self._gpus[group]
        self.flows += _flows(view, np.full(len(role), job), role, group)
        self.versions[int(view.topology.partition_of[view.machines.node_of[group[0]]])] += 1

    def vertices(self, pod: PodGraph) -> F32:
        """Return what describes the vertices of a partition's graph, (vertices, vertex_width)."""
        found = np.zeros((len(pod.kinds), self.rows.shape[1]), dtype=np.float32)
        found[: len(pod.groups)] = self.rows[pod.groups]
        found[np.arange(len(pod.kinds)), pod.kinds] = 1.0
        return found

    def numbers(self, graph: WiredGraph) -> F32:
        """Return the numbers of a graph's edges, (edges, NUMBERS)."""
        return graph.numbers(self.flows, self.used)

    def task(self, pod: int, job: int, role: int, left: int, forwarded: bool) -> TaskInputs:
        """Return what an agent reads for the next task of a job.

        Args:
            pod: the agent's partition.
            job: index of the job in the view.
            role: of the task.
            left: jobs that are still to be placed after this one.
            forwarded: whether the job came from another partition.
        """
        draft, graph = self.draft, self.graphs.pods[pod]
        view = draft.view
        placed = draft.groups.get(job, ([], []))
        own = np.zeros((len(graph.groups), 2))
        for of_role in (WORKER, SERVER):
            np.add.at(own[:, of_role], self.graphs.place[placed[of_role]], 1.0)
        free, capacity = draft.free[graph.groups], view.machines.capacity[graph.groups]
        after = free - view.demand[job, role]
        near = np.column_stack([_nearby(graph, own), after / np.maximum(capacity, 1.0)]).astype(np.float32)
        counts, turn = (len(placed[WORKER]), len(placed[SERVER])), (left, forwarded)
        about = self.about(job, role, counts, turn, self.left_in(pod)[0])
        begun = any(placed)
        forwards = np.full(len(self.graphs.pods), not begun and not forwarded)
        forwards[pod] = False
        running = len(view.placed.job) > 0 or bool(draft.groups)  # in an empty cluster it would wait for nothing
        fits = draft.fits(job, role, graph.groups)
        return TaskInputs(pod, job, role, near, about, fits, forwards, not begun and running)

    def about(self, job: int, role: int, placed: tuple[int, int], turn: tuple[int, bool], part: Floats) -> F32:
        """Return what an agent reads of a task and its job, (task_width,).

        Args:
            job: index of the job in the view.
            role: of the task.
            placed: workers and servers of the job that have got places.
            turn: jobs that are still to be placed after this one, and whether it came from another partition.
            part: of the partition's cpus and GPUs that is left, (2,).
        """
        view = self.draft.view
        state, models = view.jobs[job].job, len(view.models)
        found = np.zeros(task_width(models), dtype=np.float32)
        if (model := int(view.placed.model[job])) >= 0:
            found[model] = 1.0
        asked = state.max_workers / 4, state.max_servers / 4, placed[WORKER] / 4, placed[SERVER] / 4
        found[models:] = [role, *asked, remaining_work(view, job) / _HOURS, turn[0] / 10, turn[1], *part]
        return found

    def left_in(self, pod: int) -> tuple[Floats, Floats]:
        """Return the part of a partition's cpus and GPUs that is left, and how many it has, both (2,)."""
        groups, draft = self.graphs.pods[pod].groups, self.draft
        whole = np.maximum(draft.view.machines.capacity[groups].sum(axis=0), 1.0)
        return draft.free[groups].sum(axis=0) / whole, whole


def _nearby(graph: PodGraph, own: Floats) -> Floats:
    """Return a job's tasks by role in each group, elsewhere in its node, in its rack, in the partition, (groups, 8).

    Args:
        graph: of the partition.
        own: tasks in each group, (groups, 2).
    """
    if not own.any():
        return np.zeros((len(own), 8))
    node = np.stack([np.bincount(graph.node, each)[graph.node] for each in own.T], axis=1)
    rack = np.stack([np.bincount(graph.rack, each)[graph.rack] for each in own.T], axis=1)
    return np.column_stack([own, node - own, rack - node, own.sum(axis=0) - rack])


def _flows(view: PlacementView, job: Ints, role: Ints, group: Ints) -> Floats:
    """Return how many flows between nodes are on each link, (links,): one for each pair of a job's workers and servers.

    Args:
        view: of the cluster.
        job: of each task, (tasks,).
        role: of each task, (tasks,).
        group: of each task, (tasks,).
    """
    node = view.machines.node_of[group]
    servers = np.flatnonzero(role == SERVER)
    servers = servers[np.argsort(job[servers], kind="stable")]
    counts = np.bincount(job[servers], minlength=len(view.jobs))
    first = np.cumsum(counts) - counts
    workers = np.flatnonzero(role == WORKER)
    worker = np.repeat(workers, counts[job[workers]])
    rank = np.arange(len(worker)) - np.repeat(
        np.cumsum(counts[job[workers]]) - counts[job[workers]], counts[job[workers]]
    )
    server = servers[first[job[worker]] + rank]
    apart = node[worker] != node[server]
    numbers = _FLOWS * view.placed.number[job[worker]] + rank
    routes = view.topology.routes(node[worker][apart], node[server][apart], numbers[apart])
    return np.bincount(routes.links, minlength=len(view.topology.capacity)).astype(float)
