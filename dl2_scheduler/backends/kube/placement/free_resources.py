"""This module says what is free on the nodes while pods are being placed: what is bound has been taken off. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.backends.kube.apiserver.objects import NodeInfo, PodInfo
from dl2_scheduler.backends.kube.placement.node_constraints import Constraints
from dl2_scheduler.backends.kube.placement.pod_affinity import Labelled, Neighbours
from dl2_scheduler.cluster.free_resources import NOWHERE, SLACK, Amounts, NodeRule

Requests = Mapping[str, float]

_NAMED = 3


class PlaceableTask(Labelled, Protocol):
    """A `PlaceableTask` needs a place: it is a pod, or what one will be made of."""

    @property
    def requests(self) -> Requests:
        """The amounts that it takes, by resource."""


@dataclass(frozen=True)
class TaskPlacement:
    """A `TaskPlacement` is a task on a node.

    Attributes:
        node: its index.
        demand: (resources,).
        task: that has it.
        number: of the task among its neighbours; None: nobody asks about any.
    """

    node: int
    demand: Amounts
    task: PlaceableTask
    number: int | None


class FreeNodeResources:
    """A `FreeNodeResources` has the nodes of a cluster, and what is free on them.

    Args:
        nodes: all.
        pods: that are bound, whosever they are.
        names: of the resources that will be asked for; others are not looked at.
        rule: by which a task finds its node.
        neighbours: whether it matters which pods are on a node.

    Attributes:
        neighbours: as above.
        free: (nodes, resources); below 0 where a node has been taken more of than it has.
        largest: amount that a node has, by resource.
    """

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        pods: Sequence[PodInfo],
        names: Sequence[str],
        rule: NodeRule,
        neighbours: bool = False,
    ):
        self.nodes = nodes
        self.names = tuple(names)
        self.neighbours = neighbours
        self._rule = rule
        self._index = {node.name: number for number, node in enumerate(nodes)}
        self._whole = _matrix([node.allocatable for node in nodes], self.names)
        self.largest = dict(zip(self.names, self._whole.max(axis=0, initial=0.0), strict=True))
        taken = np.zeros_like(self._whole)
        here = [pod for pod in pods if pod.node in self._index]
        np.add.at(taken, [self._index[pod.node] for pod in here], _matrix([pod.requests for pod in here], self.names))
        self.free = self._whole - taken
        self._used = self._parts(taken).sum(axis=1)
        self._may: dict[Constraints, NDArray[np.bool_]] = {}
        self._last = NOWHERE
        places = [(pod, self._index[pod.node]) for pod in here] if neighbours else []
        self._neighbours = Neighbours(nodes, places) if neighbours else None
        self._kept = np.zeros_like(self._whole)
        self._kept_for: dict[int, str] = {}  # by the node's index

    def may(self, constraints: Constraints) -> NDArray[np.bool_]:
        """Return the nodes that a pod may go to, full or not, (nodes,)."""
        key = constraints.of_nodes  # of many jobs one, where each asks about its own pods
        if key not in self._may:
            self._may[key] = np.array([not node.refusal(key) for node in self.nodes], dtype=bool)
        return self._may[key]

    def fitting(self, task: PlaceableTask) -> NDArray[np.bool_]:
        """Return the nodes that a task may go to, and where it fits now, (nodes,)."""
        fits: NDArray[np.bool_] = _fits(self._vector(task.requests), self.free).all(axis=1)
        fits = fits & self.may(task.constraints)
        return fits if self._neighbours is None else fits & self._neighbours.may(task)

    def claim_on(self, task: PlaceableTask, node: int) -> TaskPlacement | None:
        """Put a task on a node, given by its index; return None where it does not fit there, or may not go there."""
        return self._claim(task, node, self._vector(task.requests)) if self.fitting(task)[node] else None

    def claim(
        self, task: PlaceableTask, place: NDArray[np.bool_] | None = None, packed: bool = False
    ) -> TaskPlacement | None:
        """Put a task on the node where the rule wants it; return None where it fits nowhere.

        Args:
            task: to place.
            place: nodes where it has to go if it wants to be near others; None: any.
            packed: on the node that is used most, whatever the rule is.
        """
        demand = self._vector(task.requests)
        fits = self.fitting(task)
        if place is not None and task.constraints.neighbours and task.constraints.neighbours.near:
            fits &= place
        node = self._pick(fits, demand, packed)
        if node == NOWHERE:
            return None
        self._last = node
        return self._claim(task, node, demand)

    def put(self, pod: PodInfo) -> TaskPlacement | None:
        """Count a bound pod where it is; return None where that node is not there."""
        node = self._index.get(pod.node)
        return None if node is None else self._claim(pod, node, self._vector(pod.requests))

    def _claim(self, task: PlaceableTask, node: int, demand: Amounts) -> TaskPlacement:
        self._take(node, demand)
        return TaskPlacement(node, demand, task, self._neighbours.add(task, node) if self._neighbours else None)

    def give_back(self, claim: TaskPlacement) -> None:
        """Undo a placement."""
        self._take(claim.node, -claim.demand)
        if self._neighbours is not None and claim.number is not None:
            self._neighbours.remove(claim.number)

    def places_for(self, tasks: Sequence[PlaceableTask]) -> Iterator[NDArray[np.bool_]]:
        """Yield the nodes of each place that has room for all these tasks as a sum, (nodes,).

        Places are those of the key of the first task's affinity.
        """
        if self._neighbours is None or not tasks:
            return
        total = np.sum([self._vector(task.requests) for task in tasks], axis=0)
        asked = tasks[0].constraints.neighbours
        for place in self._neighbours.places(asked.near[0].key) if asked else ():
            if (total <= np.maximum(self.free[place], 0.0).sum(axis=0) + SLACK).all():
                yield place

    def keep(self, claims: Sequence[TaskPlacement], words: str) -> None:
        """Take room that is not free yet from all who come after, but no more than a node will have.

        Args:
            claims: the room.
            words: whose it is, for people.
        """
        for claim in claims:
            self._take(claim.node, claim.demand)
            self._keep(claim, words)
            if self._neighbours is not None:
                self._neighbours.keep(claim.task, claim.node)

    def keep_on(self, task: PlaceableTask, node: str, words: str) -> TaskPlacement | None:
        """Keep room on a node for a task that is on its way; return None where that node is not there.

        Args:
            task: counts as being there, also for its neighbours.
            node: its name.
            words: whose the room is, for people.
        """
        index = self._index.get(node)
        if index is None:
            return None
        claim = self._claim(task, index, self._vector(task.requests))
        self._keep(claim, words)
        return claim

    def release(self, claim: TaskPlacement) -> None:
        """Undo `keep_on`."""
        self.give_back(claim)
        self._kept[claim.node] -= claim.demand

    def _keep(self, claim: TaskPlacement, words: str) -> None:
        self._kept[claim.node] += claim.demand
        self._kept_for[claim.node] = words

    def why_not(self, task: PlaceableTask) -> str:
        """Return why a task fits nowhere, for people, as kube-scheduler words it."""
        if not self.nodes:
            return "there are no nodes"
        may, demand = self.may(task.constraints), self._vector(task.requests)
        reasons: dict[str, int] = {}
        for number in np.flatnonzero(~may):
            reason = self.nodes[number].refusal(task.constraints)
            reasons[reason] = reasons.get(reason, 0) + 1
        for reason, allowed in self._neighbours.checks(task) if self._neighbours else ():
            if count := int((may & ~allowed).sum()):
                reasons[reason] = reasons.get(reason, 0) + count
            may = may & allowed
        kept = may & _fits(demand, self.free + self._kept).all(axis=1)
        short = ~_fits(demand, self.free) & (may & ~kept)[:, None]
        for number, name in enumerate(self.names):
            first = short[:, number] & ~short[:, :number].any(axis=1)
            if count := int(first.sum()):
                most = max(0.0, float(self.free[may, number].max()))
                reasons[f"short of {name}: it takes {task.requests.get(name, 0):g}, at most {most:g} free"] = count
        found = [f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda each: -each[1])]
        for words in dict.fromkeys(self._kept_for.values()):
            if where := [node for node in np.flatnonzero(kept).tolist() if self._kept_for.get(node) == words]:
                found.append(f"room on {self.names_of(where)} is kept for {words}")
        return f"0/{len(self.nodes)} nodes are available: {'; '.join(found)}"

    def names_of(self, numbers: Iterable[int]) -> str:
        """Return the names of nodes, for people; of many the first ones."""
        names = [self.nodes[number].name for number in sorted({int(number) for number in numbers})]
        more = len(names) - _NAMED
        return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

    def _pick(self, fits: NDArray[np.bool_], demand: Amounts, packed: bool) -> int:
        """Return the node for a task, of those where it fits, or NOWHERE; see `claim`."""
        where = np.flatnonzero(fits)
        if not len(where):
            return NOWHERE
        rule = NodeRule.PACK if packed else self._rule
        if rule is NodeRule.ROUND_ROBIN:
            later = where[where > self._last]
            return int(later[0] if len(later) else where[0])
        used = self._used[where]
        return int(where[used.argmax() if rule is NodeRule.PACK else used.argmin()])

    def _take(self, node: int, demand: Amounts) -> None:
        self.free[node] -= demand
        self._used[node] += self._parts(demand[None, :], node).sum()

    def _parts(self, amounts: Amounts, node: int | None = None) -> Amounts:
        """Return which parts of what nodes have these amounts are; 0 of what one has nothing of."""
        whole = self._whole if node is None else self._whole[node : node + 1]
        parts: Amounts = np.divide(amounts, whole, out=np.zeros_like(whole), where=whole > 0)
        return parts

    def _vector(self, requests: Requests) -> Amounts:
        vector: Amounts = _matrix([requests], self.names)[0]
        return vector


class LaterNodeResources(FreeNodeResources):
    """A `LaterNodeResources` has the nodes when more has ended: a task goes where the least is still to end.

    Args:
        nodes: all.
        pods: that will be there still.
        names: of resources; see `FreeNodeResources`.
        now: the same nodes as they are.
    """

    def __init__(
        self, nodes: Sequence[NodeInfo], pods: Sequence[PodInfo], names: Sequence[str], now: FreeNodeResources
    ):
        super().__init__(nodes, pods, names, NodeRule.SPREAD, now.neighbours)
        self._now = now
        self._claimed = np.zeros_like(self.free)

    def _pick(self, fits: NDArray[np.bool_], demand: Amounts, packed: bool) -> int:
        if packed:
            return super()._pick(fits, demand, packed)
        where = np.flatnonzero(fits)
        if not len(where):
            return NOWHERE
        free = np.maximum(self._now.free[where] - self._claimed[where], 0.0)
        lacks = np.maximum(demand - free, 0.0)
        whole = self._whole[where]
        return int(where[np.divide(lacks, whole, out=np.zeros_like(lacks), where=whole > 0).sum(axis=1).argmin()])

    def _take(self, node: int, demand: Amounts) -> None:
        super()._take(node, demand)
        self._claimed[node] += demand


def _fits(demand: Amounts, free: Amounts) -> NDArray[np.bool_]:
    """Return whether a demand fits, (nodes, resources).

    A demand of nothing fits everywhere, also where more is taken than there is.
    """
    fits: NDArray[np.bool_] = demand <= np.maximum(free, 0.0) + SLACK
    return fits


def _matrix(each: Sequence[Requests], names: Sequence[str]) -> Amounts:
    rows = [[amounts.get(name, 0.0) for name in names] for amounts in each]
    return np.array(rows, dtype=float).reshape(len(each), len(names))
