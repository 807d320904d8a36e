"""What is free on the nodes while pods are being placed: everything that is bound has been taken off. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.backends.kube.constraints import Constraints
from dl2_scheduler.backends.kube.objects import NodeInfo, PodInfo
from dl2_scheduler.cluster.room import NOWHERE, SLACK, Amounts, NodeRule

Requests = Mapping[str, float]


@dataclass(frozen=True)
class Claim:
    """A task on a node.

    Attributes:
        node: its index.
        demand: (resources,).
    """

    node: int
    demand: Amounts


class Floor:
    """The nodes of a cluster.

    Args:
        nodes: all.
        pods: that are bound, whosever they are.
        names: of the resources that will be asked for; others are not looked at.
        rule: by which a task finds its node.

    Attributes:
        free: (nodes, resources); below 0 where a node has been taken more of than it has.
        largest: amount that a node has, by resource.
    """

    def __init__(self, nodes: Sequence[NodeInfo], pods: Sequence[PodInfo], names: Sequence[str], rule: NodeRule):
        self.nodes = nodes
        self.names = tuple(names)
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

    def may(self, constraints: Constraints) -> NDArray[np.bool_]:
        """Nodes that a pod may go to, full or not, (nodes,)."""
        if constraints not in self._may:
            self._may[constraints] = np.array([not node.refusal(constraints) for node in self.nodes], dtype=bool)
        return self._may[constraints]

    def claim(self, requests: Requests, constraints: Constraints) -> Claim | None:
        """Put a task on the node where the rule wants it; None: it fits nowhere."""
        demand = self._vector(requests)
        node = self._pick((demand <= self.free + SLACK).all(axis=1) & self.may(constraints))
        if node == NOWHERE:
            return None
        self._take(node, demand)
        self._last = node
        return Claim(node, demand)

    def give_back(self, claim: Claim) -> None:
        """Undo a claim."""
        self._take(claim.node, -claim.demand)

    def why_not(self, requests: Requests, constraints: Constraints) -> str:
        """Why a task fits nowhere, for people, as kube-scheduler words it."""
        may, demand = self.may(constraints), self._vector(requests)
        reasons: dict[str, int] = {}
        for number in np.flatnonzero(~may):
            reason = self.nodes[number].refusal(constraints)
            reasons[reason] = reasons.get(reason, 0) + 1
        lacks = (demand > self.free + SLACK) & may[:, None]
        for number, name in enumerate(self.names):
            first = lacks[:, number] & ~lacks[:, :number].any(axis=1)
            if count := int(first.sum()):
                most = float(self.free[may, number].max())
                reasons[f"short of {name}: it takes {requests.get(name, 0):g}, at most {max(0.0, most):g} free"] = count
        found = "; ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda each: -each[1]))
        return f"0/{len(self.nodes)} nodes are available: {found}" if self.nodes else "there are no nodes"

    def _pick(self, fits: NDArray[np.bool_]) -> int:
        where = np.flatnonzero(fits)
        if not len(where):
            return NOWHERE
        if self._rule is NodeRule.ROUND_ROBIN:
            later = where[where > self._last]
            return int(later[0] if len(later) else where[0])
        used = self._used[where]
        return int(where[used.argmax() if self._rule is NodeRule.PACK else used.argmin()])

    def _take(self, node: int, demand: Amounts) -> None:
        self.free[node] -= demand
        self._used[node] += self._parts(demand[None, :], node).sum()

    def _parts(self, amounts: Amounts, node: int | None = None) -> Amounts:
        """Of what nodes have; 0 of what one has nothing of."""
        whole = self._whole if node is None else self._whole[node : node + 1]
        parts: Amounts = np.divide(amounts, whole, out=np.zeros_like(whole), where=whole > 0)
        return parts

    def _vector(self, requests: Requests) -> Amounts:
        vector: Amounts = _matrix([requests], self.names)[0]
        return vector


def _matrix(each: Sequence[Requests], names: Sequence[str]) -> Amounts:
    rows = [[amounts.get(name, 0.0) for name in names] for amounts in each]
    return np.array(rows, dtype=float).reshape(len(each), len(names))
