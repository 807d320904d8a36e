"""This module says on which virtual node each task is counted. It is pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.free_resources import NOWHERE, Amounts, NodeRule, pick_node, take, vectors
from dl2_scheduler.cluster.jobs import Node, Resources, resource_names


@dataclass(frozen=True)
class TaskDemand:
    """A `TaskDemand` is what the tasks of one role of a job take.

    Attributes:
        job: the job's name.
        role: the role of the tasks.
        count: the number of them.
        demand: what each of them takes.
        on: names of the nodes of the first of them, which a placement policy has chosen.
    """

    job: str
    role: str
    count: int
    demand: Resources
    on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """A `Placement` says where tasks are counted.

    Attributes:
        nodes: all.
        where: names of the nodes of each job's tasks, by (job, role), in their order.
        over: jobs with tasks that fit nowhere beside the others; such a task is counted on the least used node.
        free: by node and resource; negative where more is counted than there is.
    """

    nodes: Sequence[Node]
    where: Mapping[tuple[str, str], Sequence[str]]
    over: frozenset[str]
    free: Sequence[Mapping[str, float]]

    def left(self) -> tuple[Node, ...]:
        """Return the nodes, with what is free as their capacity."""
        return tuple(
            Node(node.name, {name: max(0.0, amount) for name, amount in free.items()})
            for node, free in zip(self.nodes, self.free, strict=True)
        )


def place(nodes: Sequence[Node], tasks: Sequence[TaskDemand], rule: NodeRule) -> Placement:
    """Count tasks on nodes, in the order in which they are given; first all those whose node is known.

    Args:
        nodes: at least one.
        tasks: what the tasks of jobs take.
        rule: the rule by which a task finds its node.
    """
    names = resource_names(nodes)
    capacity = vectors([node.capacity for node in nodes], names)
    free, used, last = capacity.copy(), np.zeros(len(nodes)), NOWHERE
    where: dict[tuple[str, str], list[str]] = {}
    over = set()
    index = {node.name: number for number, node in enumerate(nodes)}
    chosen = [[index[name] for name in group.on[: group.count] if name in index] for group in tasks]
    for known, demand in zip(chosen, vectors([group.demand for group in tasks], names), strict=True):
        for node in known:
            take(free, used, capacity, node, demand)
    for group, known, demand in zip(tasks, chosen, vectors([group.demand for group in tasks], names), strict=True):
        places = where.setdefault((group.job, group.role), [])
        places += [nodes[node].name for node in known]
        for _ in range(group.count - len(known)):
            node = pick_node(free, used, demand, int(rule), last)
            if node == NOWHERE:
                over.add(group.job)
                node = int(np.argmin(used))
            take(free, used, capacity, node, demand)
            places.append(nodes[node].name)
            last = node
    return Placement(nodes, where, frozenset(over), _by_name(free, nodes, names))


def fit(nodes: Sequence[Node], tasks: Sequence[TaskDemand]) -> bool:
    """Return whether tasks fit on empty nodes, spread or packed: so a policy may give a job its minimum.

    Args:
        nodes: at least one.
        tasks: of the two roles of a job.
    """
    orders = tasks, tasks[::-1]
    return any(not place(nodes, order, rule).over for rule in (NodeRule.SPREAD, NodeRule.PACK) for order in orders)


def _by_name(free: Amounts, nodes: Sequence[Node], names: Sequence[str]) -> list[dict[str, float]]:
    """Return what is free of each node's capacity, by resource."""
    rows = (dict(zip(names, map(float, row), strict=False)) for row in free)
    return [{name: row[name] for name in node.capacity} for node, row in zip(nodes, rows, strict=True)]
