"""Which nodes a pod may go to by the pods that are there: affinity, anti-affinity, spreading, ports. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.backends.kube.beside import Kind, Port, Spread, Term
from dl2_scheduler.backends.kube.constraints import Constraints
from dl2_scheduler.backends.kube.objects import NodeInfo, PodInfo

_Counts = NDArray[np.int64]  # by node
_Where = NDArray[np.bool_]  # by node


class Labelled(Protocol):
    """A pod, or what one will be made of."""

    @property
    def namespace(self) -> str:
        """Of it."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Of it."""

    @property
    def constraints(self) -> Constraints:
        """Where it may go."""


class Neighbours:
    """The pods on the nodes of a cluster. What is asked about them is counted once, then kept true.

    Args:
        nodes: all.
        pods: those that are there, with the index of their node.
    """

    def __init__(self, nodes: Sequence[NodeInfo], pods: Sequence[tuple[PodInfo, int]]):
        self._nodes = nodes
        self._placed: dict[int, tuple[Labelled, int]] = {}
        self._next = 0
        self._of: dict[tuple[Kind, ...], _Counts] = {}  # pods of all these kinds
        self._held: dict[Term | Port, _Counts] = {}  # pods that have the port, or keep such away
        self._places: dict[str, _Counts] = {}
        self._eligible: dict[tuple[Constraints, bool, bool], _Where] = {}
        for pod, node in pods:
            self.add(pod, node)

    def add(self, task: Labelled, node: int) -> int:
        """A pod is on a node; returns its number."""
        self._next += 1
        self._placed[self._next] = (task, node)
        for kinds, counts in self._of.items():
            counts[node] += _is_of(kinds, task)
        self._hold(task, node, 1)
        return self._next

    def remove(self, number: int) -> None:
        """Undo `add`."""
        task, node = self._placed.pop(number)
        for kinds, counts in self._of.items():
            counts[node] -= _is_of(kinds, task)
        self._hold(task, node, -1)

    def keep(self, task: Labelled, node: int) -> None:
        """A pod is to come there some day: what it keeps away stays away."""
        self._hold(task, node, 1)

    def may(self, task: Labelled) -> _Where:
        """Nodes that a pod may go to, (nodes,)."""
        where = np.ones(len(self._nodes), dtype=bool)
        for _, allowed in self.checks(task):
            where &= allowed
        return where

    def checks(self, task: Labelled) -> Iterator[tuple[str, _Where]]:
        """Each thing that matters: why a node is none for a pod, for people, and the nodes that are some."""
        if asked := task.constraints.beside:
            for port in asked.ports:
                taken = [counts for held, counts in self._held.items() if isinstance(held, Port) and port.meets(held)]
                if taken:
                    yield f"has not the host port {port.number} free", np.sum(taken, axis=0) == 0
            for term in asked.apart:
                away = self._in_place(self._count((term.kind,)), term.key) > 0
                yield f"has pods in its {term.key} that the pod's anti-affinity keeps it from", ~away
            if asked.near:
                yield "does not meet the pod's affinity to other pods", self._near(task, asked.near)
            for spread in asked.spread:
                yield f"would have too many such pods in its {spread.term.key}", self._even(task, spread)
        for held, counts in self._held.items():
            if isinstance(held, Term) and held.kind.has(task.namespace, task.labels):
                away = self._in_place(counts, held.key) > 0
                yield f"keeps the pod away: a pod of its {held.key} has such an anti-affinity", ~away

    def places(self, key: str) -> list[_Where]:
        """The nodes of each place."""
        ids = self._place(key)
        return [ids == number for number in range(int(ids.max(initial=-1)) + 1)]

    def _near(self, task: Labelled, terms: Sequence[Term]) -> _Where:
        kinds = tuple(term.kind for term in terms)
        counts = self._count(kinds)
        there = [self._in_place(counts, term.key) for term in terms]
        first = not any(each.any() for each in there) and _is_of(kinds, task)  # of those that want to be together
        where = np.ones(len(self._nodes), dtype=bool)
        for term, each in zip(terms, there, strict=True):
            where &= self._place(term.key) >= 0 if first else each > 0
        return where

    def _even(self, task: Labelled, spread: Spread) -> _Where:
        constraints, key = task.constraints, spread.term.key
        ids = self._place(key)
        eligible = self._eligibility(constraints, spread) & (ids >= 0)
        each = np.bincount(ids[eligible], self._count((spread.term.kind,))[eligible], minlength=ids.max(initial=-1) + 1)
        there = np.unique(ids[eligible])
        fewest = each[there].min() if len(there) and len(there) >= spread.places else 0
        more = int(spread.term.kind.has(task.namespace, task.labels))
        fits: _Where = (ids >= 0) & ((each[ids] if len(each) else np.zeros(len(ids))) + more - fewest <= spread.skew)
        return fits

    def _eligibility(self, constraints: Constraints, spread: Spread) -> _Where:
        key = (constraints, spread.by_affinity, spread.by_taints)
        if key not in self._eligible:
            outside = [
                (spread.by_affinity and constraints.misses(node.name, node.labels))
                or (spread.by_taints and constraints.repelled(node.taints, node.cordoned))
                for node in self._nodes
            ]
            self._eligible[key] = np.array([not why for why in outside], dtype=bool)
        return self._eligible[key]

    def _count(self, kinds: tuple[Kind, ...]) -> _Counts:
        if kinds not in self._of:
            counts = np.zeros(len(self._nodes), dtype=np.int64)
            for task, node in self._placed.values():
                counts[node] += _is_of(kinds, task)
            self._of[kinds] = counts
        return self._of[kinds]

    def _hold(self, task: Labelled, node: int, more: int) -> None:
        asked = task.constraints.beside
        helds: tuple[Term | Port, ...] = (*asked.apart, *asked.ports) if asked else ()
        for held in helds:
            if held not in self._held:
                self._held[held] = np.zeros(len(self._nodes), dtype=np.int64)
            self._held[held][node] += more

    def _place(self, key: str) -> _Counts:
        """Number of the place of each node; -1: it is in none."""
        if key not in self._places:
            numbers: dict[str, int] = {}
            values = [node.labels.get(key) for node in self._nodes]
            ids = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
            self._places[key] = np.array(ids, dtype=np.int64)
        return self._places[key]

    def _in_place(self, counts: _Counts, key: str) -> NDArray[np.float64]:
        """Of all nodes in the place of each; 0 where it is in none."""
        ids = self._place(key)
        some = ids >= 0
        if not some.any():
            return np.zeros(len(ids))
        sums = np.bincount(ids[some], counts[some])
        found: NDArray[np.float64] = np.where(some, sums[ids], 0.0)
        return found


def _is_of(kinds: Sequence[Kind], task: Labelled) -> bool:
    """Of all of them."""
    going = isinstance(task, PodInfo) and task.deleting
    return all(kind.has(task.namespace, task.labels) and not (kind.living and going) for kind in kinds)
