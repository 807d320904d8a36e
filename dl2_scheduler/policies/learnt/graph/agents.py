"""This module is the graph scheduler: an agent for each partition, which places a job's tasks, or forwards the job.

Each agent reads the inside of its partition by edge-conditioned convolutions, sends what it makes of it to the others,
and reads theirs over the graph of partitions. All agents share their weights, so that any number of partitions and
groups goes. A job is forwarded once at most, as a whole, before its first task; then it gets its places there, or
waits. `learning.placement.graph.run` makes the weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.edge_conv import F32, convolved
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, waiting

INNER, BETWEEN = 4, 2
"""Layers of convolution inside a partition, and between partitions."""

Choose = Callable[[Watched, TaskInputs], int]
"""Returns an action: a group of the partition, then behind all groups a partition to forward to, then waiting."""


def actions(inputs: TaskInputs) -> NDArray[np.bool_]:
    """Return which actions are allowed, (groups + partitions + 1,)."""
    return np.concatenate([inputs.fits, inputs.forwards, [inputs.waits]])


def place_by_agents(view: PlacementView, choose: Choose) -> Places:
    """Place job by job, shortest first, each by the agent of its partition.

    Args:
        view: of the cluster.
        choose: decides about a task.
    """
    graphs = cluster_graphs(view.machines, view.topology)
    watched = Watched(Draft(view), graphs)
    order = waiting(view, JobOrder.SHORTEST)
    for number, job in enumerate(order):
        left = len(order) - number - 1
        to = place_job(watched, job, view.jobs[job].job.partition, left, False, choose)
        if to is not None:
            place_job(watched, job, to, left, True, choose)
        if job in watched.draft.groups:
            watched.take(job)
    return watched.draft.placement()


def place_job(watched: Watched, job: int, pod: int, left: int, forwarded: bool, choose: Choose) -> int | None:
    """Give a job its places in a partition, all or none, and return where it is forwarded to, if it is.

    Args:
        watched: the cluster.
        job: index of the job.
        pod: the partition.
        left: jobs that are still to be placed after this one.
        forwarded: whether the job came from another partition.
        choose: decides about a task.
    """
    draft, groups = watched.draft, watched.graphs.pods[pod].groups
    for role in missing_tasks(draft.view, job):
        inputs = watched.task(pod, job, role, left, forwarded)
        action = choose(watched, inputs) if actions(inputs).any() else len(groups) + len(inputs.forwards)
        if action < len(groups):
            draft.put(job, role, int(groups[action]))
            continue
        draft.drop(job)
        to = action - len(groups)
        return to if to < len(inputs.forwards) else None
    return None


@dataclass(frozen=True)
class ReadGraphs:
    """These `ReadGraphs` are what agents know before a job's tasks are looked at.

    Attributes:
        groups: what the scorer's first layer makes of each group, by partition, (groups, hidden).
        pods: of each partition: what the agents have told each other, (partitions, messages).
    """

    groups: list[F32]
    pods: F32


@dataclass(frozen=True)
class GraphAgents:
    """See `PlacementPolicy`: the best of the agents' scores decides.

    Attributes:
        arrays: of the network, by name, as `learning.placement.graph.net.GraphNet` has them.
    """

    arrays: Mapping[str, F32]

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        scorer = Scorer(self.arrays)

        def best(watched: Watched, inputs: TaskInputs) -> int:
            return int(np.where(actions(inputs), scorer.scores(watched, inputs), -np.inf).argmax())

        return place_by_agents(view, best)


class Scorer:
    """A `Scorer` gives scores while one placement is made; a partition is read anew when it got a job.

    Args:
        arrays: see `GraphAgents`.
    """

    def __init__(self, arrays: Mapping[str, F32]):
        self._arrays = arrays
        self._read: dict[int, tuple[int, F32, F32]] = {}  # by partition: its version, groups, and what it tells
        self._versions: list[int] = []
        self._encoded = ReadGraphs([], np.zeros((0, 0), dtype=np.float32))

    def scores(self, watched: Watched, inputs: TaskInputs) -> Floats:
        """Return a number for each action, (groups + partitions + 1,)."""
        encoded = self._encode(watched)
        given, pods = self._arrays, encoded.pods
        whole = np.concatenate([inputs.task, pods[inputs.pod]])
        first = encoded.groups[inputs.pod] + inputs.near @ given["near.weight"].T
        first += given["whole.weight"] @ whole + given["whole.bias"]
        second = self._out(first)
        if inputs.waits or inputs.forwards.any():
            rest = given["rest.weight"] @ whole + given["rest.bias"]
            waits = np.maximum(rest, 0) @ given["wait.weight"][0] + given["wait.bias"][0]
            forwards = np.maximum(rest + pods @ given["other.weight"].T, 0) @ given["forward.weight"][0]
        else:
            waits, forwards = np.float32(0), np.zeros(len(pods), dtype=np.float32)
        found: Floats = np.concatenate([second @ given["out.weight"][0], forwards, [waits]]).astype(float)
        return found

    def known(self, watched: Watched, pods: Ints, groups: Ints) -> F32:
        """Return what agents know of some groups before a task is looked at, (rows, groups, hidden).

        Args:
            watched: the cluster.
            pods: a partition for each row, (rows,).
            groups: of its groups, (rows, groups).
        """
        encoded = self._encode(watched)
        return np.stack([encoded.groups[pod][own] for pod, own in zip(pods, groups, strict=True)])

    def of_some(self, watched: Watched, known: F32, pods: Ints, near: F32, task: F32) -> Floats:
        """Return the scores of some groups for several tasks at once, (rows, groups).

        Args:
            watched: the cluster.
            known: see there.
            pods: see there.
            near: see `TaskInputs`, (rows, groups, NEAR).
            task: see there, (rows, task_width).
        """
        given = self._arrays
        whole = np.concatenate([task, self._encode(watched).pods[pods]], axis=1)
        first = known + near @ given["near.weight"].T
        first += (whole @ given["whole.weight"].T + given["whole.bias"])[:, None]
        found: Floats = (self._out(first) @ given["out.weight"][0]).astype(float)
        return found

    def _out(self, first: F32) -> F32:
        """Return what the last hidden layer makes of the first one's sums, (..., hidden)."""
        found: F32 = np.maximum(np.maximum(first, 0) @ self._arrays["hidden.weight"].T + self._arrays["hidden.bias"], 0)
        return found

    def _encode(self, watched: Watched) -> ReadGraphs:
        """Return what agents know; only partitions that got a job since then are read anew."""
        if watched.versions != self._versions:
            self._versions = list(watched.versions)
            for pod, version in enumerate(self._versions):
                if pod not in self._read or self._read[pod][0] != version:
                    self._read[pod] = version, *self._inside(watched, pod)
            order = range(len(self._versions))
            told = np.stack([self._read[pod][2] for pod in order])
            self._encoded = ReadGraphs([self._read[pod][1] for pod in order], self._between(watched, told))
        return self._encoded

    def _inside(self, watched: Watched, pod: int) -> tuple[F32, F32]:
        """Return what the scorer makes of a partition's groups, and what its agent tells the others."""
        graph, given = watched.graphs.pods[pod], self._arrays
        rows, numbers = watched.vertices(graph), watched.numbers(graph)
        values = rows
        for layer in range(INNER):
            values = convolved(given, f"inner.{layer}", graph.edges, numbers, values)
        both = np.concatenate([rows, values], axis=1)[: len(graph.groups)]
        told = np.maximum(given["tell.weight"] @ both.mean(axis=0) + given["tell.bias"], 0)
        return both @ given["group.weight"].T, told

    def _between(self, watched: Watched, told: F32) -> F32:
        """Return what each agent knows when all have told what they know: all layers, (partitions, messages)."""
        graph = watched.graphs.between
        numbers = watched.numbers(graph)
        switches = np.zeros((len(graph.edges.start) - 1 - len(told), told.shape[1]), dtype=np.float32)
        values = np.concatenate([told, switches])
        layers = [told]
        for layer in range(BETWEEN):
            values = convolved(self._arrays, f"between.{layer}", graph.edges, numbers, values)
            layers.append(values[: len(told)])
        return np.concatenate(layers, axis=1)
