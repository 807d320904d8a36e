"""This module is the graph scheduler's network, to train: `policies.learnt.graph.agents` does the same in numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dl2_scheduler.policies.learnt.graph.agent_inputs import NEAR, TaskInputs, Watched, task_width, vertex_width
from dl2_scheduler.policies.learnt.graph.agents import BETWEEN, INNER, GraphAgents, actions
from dl2_scheduler.policies.learnt.graph.edge_conv import F32, Edges
from dl2_scheduler.policies.learnt.graph.pod_graphs import NUMBERS, ClusterGraphs

WIDTH, HIDDEN = 32, 96


@dataclass(frozen=True)
class GraphState:
    """A `GraphState` is what all agents read of the cluster, one partition's graph after the other.

    Attributes:
        rows: of the vertices, (vertices, vertex_width).
        inside: numbers of the edges inside partitions, (edges, NUMBERS).
        between: numbers of the edges between partitions, (edges, NUMBERS).
    """

    rows: F32
    inside: F32
    between: F32

    @classmethod
    def of(cls, watched: Watched) -> "GraphState":
        """Return what agents read now."""
        pods = watched.graphs.pods
        return cls(
            np.concatenate([watched.vertices(pod) for pod in pods]),
            np.concatenate([watched.numbers(pod) for pod in pods]),
            watched.numbers(watched.graphs.between),
        )


@dataclass(frozen=True)
class TaskRow:
    """A `TaskRow` is a task and what an agent reads for it, padded to the most groups that a partition has.

    Attributes:
        state: index of the state.
        pod: see `TaskInputs`.
        near: see there, (groups, NEAR).
        task: see there, (task_width,).
        allowed: see `actions`, (groups + partitions + 1,).
    """

    state: int
    pod: int
    near: F32
    task: F32
    allowed: NDArray[np.bool_]

    @classmethod
    def of(cls, state: int, inputs: TaskInputs, groups: int) -> "TaskRow":
        """Return a task's row.

        Args:
            state: index of the state.
            inputs: of the task.
            groups: most that a partition has.
        """
        missing = groups - len(inputs.fits)
        near = np.pad(inputs.near, ((0, missing), (0, 0)))
        allowed = np.insert(actions(inputs), [len(inputs.fits)] * missing, False)
        return cls(state, inputs.pod, near, inputs.task, allowed)


class Wiring:
    """A `Wiring` is a cluster's graphs as tensors, all partitions' insides as one.

    Args:
        graphs: of the cluster.

    Attributes:
        inside: (sources, targets, parts of a mean) of all edges inside partitions.
        between: those of the edges between partitions.
        groups: the vertex of each group, by partition, padded with the first, (partitions, groups).
        real: which of these are groups, (partitions, groups).
    """

    def __init__(self, graphs: ClusterGraphs):
        starts = graphs.first[:-1].tolist()
        self.inside = wired([pod.edges for pod in graphs.pods], starts)
        self.between = wired([graphs.between.edges], [0])
        self.switches = len(graphs.between.edges.start) - 1 - len(graphs.pods)
        most = max(len(pod.groups) for pod in graphs.pods)
        groups = np.zeros((len(graphs.pods), most), dtype=np.int64)
        real = np.zeros((len(graphs.pods), most), dtype=np.bool_)
        for number, (pod, start) in enumerate(zip(graphs.pods, starts, strict=True)):
            groups[number, : len(pod.groups)] = start + np.arange(len(pod.groups))
            real[number, : len(pod.groups)] = True
        self.groups, self.real = torch.from_numpy(groups), torch.from_numpy(real)


def wired(edges: Sequence[Edges], starts: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources, targets and parts of a mean of several graphs' edges, as those of one graph.

    Args:
        edges: of each graph.
        starts: the first vertex of each.
    """
    source = np.concatenate([each.source + start for each, start in zip(edges, starts, strict=True)])
    target = np.concatenate([each.target + start for each, start in zip(edges, starts, strict=True)])
    part = 1.0 / np.bincount(target)[target] if len(target) else np.zeros(0)
    return torch.from_numpy(source), torch.from_numpy(target), torch.from_numpy(part.astype(np.float32))


class EdgeConv(nn.Module):
    """This layer is an edge-conditioned convolution: see `policies.learnt.graph.edge_conv`.

    Args:
        width: of a vertex.
        out: of a vertex behind it.
    """

    def __init__(self, width: int, out: int):
        super().__init__()
        self.heard = nn.Linear((1 + NUMBERS) * width, out)
        self.own = nn.Linear(width + out, out)

    def forward(self, wiring: tuple[Tensor, Tensor, Tensor], numbers: Tensor, values: Tensor) -> Tensor:
        """Compute the vertices' values, (states, vertices, out).

        Args:
            wiring: see `Wiring`.
            numbers: of the edges, (states, edges, NUMBERS).
            values: of the vertices, (states, vertices, width).
        """
        source, target, part = wiring
        heard = values[:, source] * part[:, None]
        channels = [heard, *(heard * numbers[..., channel, None] for channel in range(NUMBERS))]
        means = torch.zeros(*values.shape[:2], (1 + NUMBERS) * values.shape[2])
        means = means.index_add(1, target, torch.cat(channels, dim=2))
        found: Tensor = torch.relu(self.own(torch.cat([values, self.heard(means)], dim=2)))
        return found


class GraphNet(nn.Module):
    """The agents' network: see `GraphAgents`, which does the same without torch.

    Args:
        models: how many there are.
    """

    def __init__(self, models: int):
        super().__init__()
        row, known = vertex_width(models), (1 + BETWEEN) * WIDTH
        widths = [row, *[WIDTH] * INNER]
        self.inner = nn.ModuleList(EdgeConv(a, b) for a, b in pairwise(widths))
        self.between = nn.ModuleList(EdgeConv(WIDTH, WIDTH) for _ in range(BETWEEN))
        self.tell = nn.Linear(row + WIDTH, WIDTH)
        self.group = nn.Linear(row + WIDTH, HIDDEN, bias=False)
        self.near = nn.Linear(NEAR, HIDDEN, bias=False)
        self.whole = nn.Linear(task_width(models) + known, HIDDEN)
        self.hidden = nn.Linear(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1, bias=False)
        self.rest = nn.Linear(task_width(models) + known, HIDDEN)
        self.other = nn.Linear(known, HIDDEN, bias=False)
        self.wait = nn.Linear(HIDDEN, 1)
        self.forward_ = nn.Linear(HIDDEN, 1, bias=False)

    def encode(self, wiring: Wiring, rows: Tensor, inside: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what agents know of groups, (states, partitions, groups, HIDDEN), and of partitions, (..., known).

        Args:
            wiring: of the cluster.
            rows: see `GraphState`, (states, ...), and so the others.
            inside: see there.
            between: see there.
        """
        values = rows
        for layer in self.inner:
            values = layer(wiring.inside, inside, values)
        both = torch.cat([rows, values], dim=2)[:, wiring.groups]
        mean = (both * wiring.real[..., None]).sum(dim=2) / wiring.real.sum(dim=1)[:, None]
        told = torch.relu(self.tell(mean))
        heard, layers = torch.cat([told, torch.zeros(len(rows), wiring.switches, WIDTH)], dim=1), [told]
        for layer in self.between:
            heard = layer(wiring.between, between, heard)
            layers.append(heard[:, : told.shape[1]])
        return self.group(both), torch.cat(layers, dim=2)

    def forward(self, groups: Tensor, pods: Tensor, pod: Tensor, near: Tensor, task: Tensor, allowed: Tensor) -> Tensor:
        """Compute the scores of actions, (tasks, groups + partitions + 1); what is not allowed has minus infinity.

        Args:
            groups: what is known of the groups of the task's partition, (tasks, groups, HIDDEN).
            pods: what is known of all partitions, (tasks, partitions, known).
            pod: of each task, (tasks,).
            near: see `TaskRow`, (tasks, groups, NEAR).
            task: see there, (tasks, task_width).
            allowed: see there, (tasks, groups + partitions + 1).
        """
        whole = torch.cat([task, pods[torch.arange(len(pod)), pod]], dim=1)
        first = torch.relu(groups + self.near(near) + self.whole(whole)[:, None])
        scores = self.out(torch.relu(self.hidden(first)))[..., 0]
        rest = self.rest(whole)
        forwards = self.forward_(torch.relu(rest[:, None] + self.other(pods)))[..., 0]
        waits = self.wait(torch.relu(rest))
        return torch.cat([scores, forwards, waits], dim=1).masked_fill(~allowed, -torch.inf)

    def policy(self) -> GraphAgents:
        """Return the policy with the present weights."""
        arrays = {name: value.detach().numpy().copy() for name, value in self.state_dict().items()}
        return GraphAgents({name.replace("forward_", "forward"): value for name, value in arrays.items()})


class TaskBook:
    """A `TaskBook` keeps tasks that agents decided about, and what they read for them.

    Attributes:
        states: that tasks were decided in.
        tasks: in order.
        chosen: the action of each task.
    """

    def __init__(self) -> None:
        self.states: list[GraphState] = []
        self.tasks: list[TaskRow] = []
        self.chosen: list[int] = []
        self._of: tuple[Watched, list[int]] | None = None

    def add(self, watched: Watched, inputs: TaskInputs, action: int) -> None:
        """Take note of a task, and of the state if it is a new one.

        Args:
            watched: the cluster.
            inputs: of the task.
            action: that was chosen.
        """
        if self._of is None or self._of[0] is not watched or self._of[1] != watched.versions:
            self.states.append(GraphState.of(watched))
            self._of = watched, list(watched.versions)
        most = max(len(pod.groups) for pod in watched.graphs.pods)
        self.tasks.append(TaskRow.of(len(self.states) - 1, inputs, most))
        own = len(inputs.fits)
        self.chosen.append(action if action < own else action + most - own)

    def copied(self) -> "TaskBook":
        """Return a book with the same tasks, for others to be added to."""
        found = TaskBook()
        found.states, found.tasks, found.chosen = list(self.states), list(self.tasks), list(self.chosen)
        return found

    def tensors(self) -> "TaskTensors":
        """Return all of it as tensors."""
        states = [np.stack([getattr(each, name) for each in self.states]) for name in ("rows", "inside", "between")]
        tasks = [np.stack([getattr(each, name) for each in self.tasks]) for name in ("near", "task", "allowed")]
        numbers = [np.array([getattr(each, name) for each in self.tasks]) for name in ("state", "pod")]
        chosen = np.array(self.chosen, dtype=np.int64)
        return TaskTensors(*(torch.from_numpy(each) for each in (*states, *numbers, *tasks, chosen)))


@dataclass(frozen=True)
class TaskTensors:
    """These `TaskTensors` are a `TaskBook`; see `GraphState` and `TaskRow`.

    Attributes:
        rows: of states.
        inside: of states.
        between: of states.
        state: of each task.
        pod: of each task.
        near: of tasks.
        task: of tasks.
        allowed: of tasks.
        chosen: the action of each task.
    """

    rows: Tensor
    inside: Tensor
    between: Tensor
    state: Tensor
    pod: Tensor
    near: Tensor
    task: Tensor
    allowed: Tensor
    chosen: Tensor

    def scores(self, net: GraphNet, wiring: Wiring, which: Tensor) -> Tensor:
        """Compute the scores of some tasks' actions, (tasks, groups + partitions + 1); their states are read once.

        Args:
            net: the network.
            wiring: of the cluster.
            which: tasks.
        """
        states, of = torch.unique(self.state[which], return_inverse=True)
        groups, pods = net.encode(wiring, self.rows[states], self.inside[states], self.between[states])
        pod = self.pod[which]
        found: Tensor = net(groups[of, pod], pods[of], pod, self.near[which], self.task[which], self.allowed[which])
        return found
