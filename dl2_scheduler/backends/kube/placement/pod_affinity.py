"""This module says which nodes a pod may go to by the pods there: affinity, anti-affinity, spreading, ports. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.backends.kube.apiserver.objects import NodeInfo, PodInfo
from dl2_scheduler.backends.kube.placement.node_constraints import Constraints
from dl2_scheduler.backends.kube.placement.pod_affinity_spec import AffinityTerm, HostPort, KubePodSpread, PodSelector

_Counts = NDArray[np.int64]  # by node
_Where = NDArray[np.bool_]  # by node
_Label = tuple[str, str]
_Asked = TypeVar("_Asked")


class Labelled(Protocol):
    """A `Labelled` is a pod, or what one will be made of."""

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the pod."""

    @property
    def constraints(self) -> Constraints:
        """Where it may go."""


class Neighbours:
    """A `Neighbours` has the pods on a cluster's nodes. What is asked about them is counted once, then kept true.

    Args:
        nodes: all.
        pods: those that are there, with the index of their node.
    """

    def __init__(self, nodes: Sequence[NodeInfo], pods: Sequence[tuple[PodInfo, int]]):
        self._nodes = nodes
        self._placed: dict[int, tuple[Labelled, int]] = {}
        self._labelled: dict[_Label, set[int]] = {}  # of those, by each label
        self._next = 0
        self._of: dict[tuple[PodSelector, ...], _Counts] = {}  # pods of all these kinds
        self._asked: dict[_Label | None, list[tuple[PodSelector, ...]]] = {}  # of those, by a label that they must have
        self._ports: dict[HostPort, _Counts] = {}  # pods that have it
        self._apart: dict[AffinityTerm, _Counts] = {}  # pods that keep such away
        self._away: dict[_Label | None, list[AffinityTerm]] = {}  # of those, by a label that they must have
        self._places: dict[str, _Counts] = {}
        self._eligible: dict[tuple[Constraints, bool, bool], _Where] = {}
        for pod, node in pods:
            self.add(pod, node)

    def add(self, task: Labelled, node: int) -> int:
        """Put a pod on a node; return its number."""
        self._next += 1
        self._placed[self._next] = (task, node)
        for label in task.labels.items():
            self._labelled.setdefault(label, set()).add(self._next)
        self._tally(task, node, 1)
        return self._next

    def remove(self, number: int) -> None:
        """Undo `add`."""
        task, node = self._placed.pop(number)
        for label in task.labels.items():
            self._labelled[label].discard(number)
        self._tally(task, node, -1)

    def _tally(self, task: Labelled, node: int, more: int) -> None:
        for kinds in _that_may_be(self._asked, task):
            self._of[kinds][node] += more * _is_of(kinds, task)
        self._hold(task, node, more)

    def keep(self, task: Labelled, node: int) -> None:
        """Keep away from a node what a pod keeps away that is to come there some day."""
        self._hold(task, node, 1)

    def may(self, task: Labelled) -> _Where:
        """Return the nodes that a pod may go to, (nodes,)."""
        where = np.ones(len(self._nodes), dtype=bool)
        for _, allowed in self.checks(task):
            where &= allowed
        return where

    def checks(self, task: Labelled) -> Iterator[tuple[str, _Where]]:
        """Yield each thing that matters for a pod: why nodes are none for it, for people, and which are, (nodes,)."""
        if asked := task.constraints.neighbours:
            for port in asked.ports:
                taken = [counts for held, counts in self._ports.items() if port.meets(held)]
                if taken:
                    yield f"has not the host port {port.number} free", np.sum(taken, axis=0) == 0
            for term in asked.apart:
                away = self._in_place(self._count((term.kind,)), term.key) > 0
                yield f"has pods in its {term.key} that the pod's anti-affinity keeps it from", ~away
            if asked.near:
                yield "does not meet the pod's affinity to other pods", self._near(task, asked.near)
            for spread in asked.spread:
                yield f"would have too many such pods in its {spread.term.key}", self._even(task, spread)
        for term in _that_may_be(self._away, task):
            if term.kind.has(task.namespace, task.labels):
                away = self._in_place(self._apart[term], term.key) > 0
                yield f"keeps the pod away: a pod of its {term.key} has such an anti-affinity", ~away

    def places(self, key: str) -> list[_Where]:
        """Return the nodes of each place, (nodes,) each.

        A place is all nodes with the same value of the label `key`.
        """
        ids = self._place(key)
        return [ids == number for number in range(int(ids.max(initial=-1)) + 1)]

    def _near(self, task: Labelled, terms: Sequence[AffinityTerm]) -> _Where:
        kinds = tuple(term.kind for term in terms)
        counts = self._count(kinds)
        there = [self._in_place(counts, term.key) for term in terms]
        first = not any(each.any() for each in there) and _is_of(kinds, task)  # of those that want to be together
        where = np.ones(len(self._nodes), dtype=bool)
        for term, each in zip(terms, there, strict=True):
            where &= self._place(term.key) >= 0 if first else each > 0
        return where

    def _even(self, task: Labelled, spread: KubePodSpread) -> _Where:
        constraints, key = task.constraints, spread.term.key
        ids = self._place(key)
        eligible = self._eligibility(constraints, spread) & (ids >= 0)
        each = np.bincount(ids[eligible], self._count((spread.term.kind,))[eligible], minlength=ids.max(initial=-1) + 1)
        there = np.unique(ids[eligible])
        fewest = each[there].min() if len(there) and len(there) >= spread.places else 0
        more = int(spread.term.kind.has(task.namespace, task.labels))
        fits: _Where = (ids >= 0) & ((each[ids] if len(each) else np.zeros(len(ids))) + more - fewest <= spread.skew)
        return fits

    def _eligibility(self, constraints: Constraints, spread: KubePodSpread) -> _Where:
        key = (constraints, spread.by_affinity, spread.by_taints)
        if key not in self._eligible:
            outside = [
                (spread.by_affinity and constraints.misses(node.name, node.labels))
                or (spread.by_taints and constraints.repelled(node.taints, node.cordoned))
                for node in self._nodes
            ]
            self._eligible[key] = np.array([not why for why in outside], dtype=bool)
        return self._eligible[key]

    def _count(self, kinds: tuple[PodSelector, ...]) -> _Counts:
        if kinds not in self._of:
            label = _label_of(kinds[0])
            self._asked.setdefault(label, []).append(kinds)
            counts = self._of[kinds] = np.zeros(len(self._nodes), dtype=np.int64)
            for number in self._placed if label is None else self._labelled.get(label, ()):
                task, node = self._placed[number]
                counts[node] += _is_of(kinds, task)
        return self._of[kinds]

    def _hold(self, task: Labelled, node: int, more: int) -> None:
        asked = task.constraints.neighbours
        if asked is None:
            return
        for port in asked.ports:
            self._ports.setdefault(port, np.zeros(len(self._nodes), dtype=np.int64))[node] += more
        for term in asked.apart:
            if term not in self._apart:
                self._apart[term] = np.zeros(len(self._nodes), dtype=np.int64)
                self._away.setdefault(_label_of(term.kind), []).append(term)
            self._apart[term][node] += more

    def _place(self, key: str) -> _Counts:
        """Return the number of each node's place, (nodes,); -1: it is in none."""
        if key not in self._places:
            numbers: dict[str, int] = {}
            values = [node.labels.get(key) for node in self._nodes]
            ids = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
            self._places[key] = np.array(ids, dtype=np.int64)
        return self._places[key]

    def _in_place(self, counts: _Counts, key: str) -> NDArray[np.float64]:
        """Return the sum over each node's place, (nodes,); 0 where it is in none."""
        ids = self._place(key)
        some = ids >= 0
        if not some.any():
            return np.zeros(len(ids))
        sums = np.bincount(ids[some], counts[some])
        found: NDArray[np.float64] = np.where(some, sums[ids], 0.0)
        return found


def _label_of(kind: PodSelector) -> _Label | None:
    """Return a label that all pods of a kind have; None: there is none such."""
    each = [(one.key, one.values[0]) for one in kind.expressions or () if one.operator == "In" and len(one.values) == 1]
    return each[0] if each else None


def _that_may_be(each: Mapping[_Label | None, list[_Asked]], task: Labelled) -> Iterator[_Asked]:
    """Yield what may concern a pod, of what is sorted by a label."""
    yield from each.get(None, ())
    for label in task.labels.items():
        yield from each.get(label, ())


def _is_of(kinds: Sequence[PodSelector], task: Labelled) -> bool:
    """Return whether a pod is of all these kinds."""
    going = isinstance(task, PodInfo) and task.deleting
    return all(kind.has(task.namespace, task.labels) and not (kind.living and going) for kind in kinds)
