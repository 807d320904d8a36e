"""The nodes of a slot while it is filled: on which each kind of task goes, and what there is no room for any more."""

from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.compiled import inlined
from dl2_scheduler.cluster.free_resources import NOWHERE, Amounts, NodeRule, fits_on, pick_node, take
from dl2_scheduler.policies.rules.ranking import Ints, Ranking, changed, first_of, ranking


class Nodes(NamedTuple):
    """These `Nodes` are those of one cluster; `claim` changes the last four.

    Attributes:
        demands: of each kind of task, (kinds, resources).
        capacity: of the nodes, (nodes, resources).
        rule: a `NodeRule`.
        free: amount, (nodes, resources).
        used: see `pick_node`, (nodes,).
        ranks: of the nodes by use: a question for each kind, and one for whatever the task.
        first: the first node where each kind fits, or NOWHERE, as `advance` found it.
    """

    demands: Amounts
    capacity: Amounts
    rule: int
    free: Amounts
    used: Amounts
    ranks: Ranking
    first: Ints


@inlined
def nodes_of(demands: Amounts, capacity: Amounts, rule: int) -> Nodes:
    """Return nodes of which all is free.

    Args:
        demands: see `Nodes`.
        capacity: see there.
        rule: see there.
    """
    kinds, count = len(demands), len(capacity)
    first = np.zeros(kinds, dtype=np.int64)
    nodes = Nodes(demands, capacity, rule, capacity.copy(), np.zeros(count), ranking(kinds + 1, count), first)
    advance(nodes)
    return nodes


@inlined
def claim(nodes: Nodes, kind: int, last: int) -> int:
    """Put a task on the node that `pick_node` would pick, and return that node, or NOWHERE.

    Args:
        nodes: that are filled; they are changed.
        kind: of the task, an index of `Nodes.demands`.
        last: the node of the task before; NOWHERE: there was none.
    """
    node = _pick(nodes, kind, last)
    if node != NOWHERE:
        _take(nodes, node, nodes.demands[kind])
    return node


@inlined
def claim_both(nodes: Nodes, kind: int, other: int, last: int) -> int:
    """Put two tasks on nodes, or none of them; return the node of the last, or NOWHERE.

    Args:
        nodes: that are filled; they are changed.
        kind: of the one task, an index of `Nodes.demands`.
        other: kind of the other task.
        last: the node of the task before; NOWHERE: there was none.
    """
    for one, two in ((kind, other), (other, kind)):  # where the one takes the last place of the other
        node = claim(nodes, one, last)
        if node == NOWHERE:
            return NOWHERE
        second = claim(nodes, two, node)
        if second != NOWHERE:
            return second
        _take(nodes, node, -nodes.demands[one])
    return NOWHERE


@inlined
def claim_all(nodes: Nodes, kind: int, count: int, other: int, others: int, last: int) -> int:
    """Put so many tasks of two kinds on nodes, or none of them; return the node of the last, or NOWHERE.

    They are packed where the rule finds no places for them: see `FreeResources.give`, which does the same.

    Args:
        nodes: that are filled; they are changed.
        kind: of some tasks, an index of `Nodes.demands`.
        count: how many of that kind.
        other: kind of the other tasks.
        others: how many of that kind.
        last: the node of the task before; NOWHERE: there was none.
    """
    taken = np.empty(count + others, dtype=np.int64)
    before = np.empty((count + others, nodes.free.shape[1] + 1))
    packs = min(count, others) > 0 and (nodes.rule == NodeRule.SPREAD or nodes.rule == NodeRule.ROUND_ROBIN)
    for turn in range(4):  # 1: where the one kind takes the places of the other; 2 and 3: packed
        if turn == 2 and not packs:
            break
        node = last
        placed = 0
        while placed < len(taken):
            of_first = placed < count if turn % 2 == 0 else placed >= others
            task = kind if of_first else other
            node = _pick(nodes, task, node) if turn < 2 else _fullest(nodes, task)
            if node == NOWHERE:
                break
            taken[placed] = node
            _take_noted(nodes, node, task, before[placed])
            placed += 1
        if placed == len(taken):
            return node
        for back in range(placed - 1, -1, -1):
            _put_back(nodes, taken[back], before[back])
        packs = packs and placed >= (count if turn % 2 == 0 else others)  # to pack helps no kind that is alone
    return NOWHERE


@inlined
def would_fit(nodes: Nodes, kind: int, count: int, other: int, others: int, last: int) -> bool:
    """Return whether `claim_all` would put all tasks; afterwards the nodes are as they were, to the last bit.

    Args:
        nodes: that are filled.
        kind: of some tasks, an index of `Nodes.demands`.
        count: how many of that kind.
        other: kind of the other tasks.
        others: how many of that kind.
        last: the node of the task before; NOWHERE: there was none.
    """
    free, used = nodes.free.copy(), nodes.used.copy()
    found = claim_all(nodes, kind, count, other, others, last) != NOWHERE
    for node in range(len(free)):
        nodes.used[node] = used[node]
        for resource in range(free.shape[1]):  # an array at once would take longer to compile than all the rest
            nodes.free[node, resource] = free[node, resource]
        changed(nodes.ranks, node)
    return found


@inlined
def advance(nodes: Nodes) -> bool:
    """Move on to the first node where each kind fits, after a claim; True: one of them fits nowhere any more."""
    gone = False
    for kind in range(len(nodes.first)):
        if nodes.first[kind] != NOWHERE:
            nodes.first[kind] = _next_fit(nodes, kind, nodes.first[kind])
            gone = gone or nodes.first[kind] == NOWHERE
    return gone


@inlined
def fit_on_two(nodes: Nodes, kind: int, other: int) -> bool:
    """Return whether two tasks fit on two different nodes, as of the last `advance`.

    Args:
        nodes: that are filled.
        kind: of the one task, an index of `Nodes.demands`.
        other: kind of the other task.
    """
    first, second = nodes.first[kind], nodes.first[other]
    if first == NOWHERE or second == NOWHERE:
        return False
    return first != second or (
        _next_fit(nodes, kind, first + 1) != NOWHERE or _next_fit(nodes, other, second + 1) != NOWHERE
    )


@inlined
def _next_fit(nodes: Nodes, kind: int, start: int) -> int:
    """Return the first node from `start` on where a task fits; nodes before it stay full while a slot is filled."""
    demand = nodes.demands[kind]
    for node in range(start, len(nodes.free)):
        if fits_on(nodes.free, node, demand):
            return node
    return NOWHERE


@inlined
def _pick(nodes: Nodes, kind: int, last: int) -> int:
    demand = nodes.demands[kind]
    if nodes.rule == NodeRule.ROUND_ROBIN:  # it looks at few
        return pick_node(nodes.free, nodes.used, demand, nodes.rule, last)
    if nodes.rule == NodeRule.LEAST_USED_ONLY:
        node = first_of(nodes.ranks, len(nodes.demands), nodes.used, 1.0, nodes.free, demand[:0])
        return node if fits_on(nodes.free, node, demand) else NOWHERE
    sign = -1.0 if nodes.rule == NodeRule.PACK else 1.0
    return first_of(nodes.ranks, kind, nodes.used, sign, nodes.free, demand)


@inlined
def _fullest(nodes: Nodes, kind: int) -> int:
    """Return the node for a task by `NodeRule.PACK`, whatever the rule of the nodes is, or NOWHERE."""
    demand, best = nodes.demands[kind], NOWHERE
    for node in range(len(nodes.free)):
        if (best == NOWHERE or nodes.used[node] > nodes.used[best]) and fits_on(nodes.free, node, demand):
            best = node
    return best


@inlined
def _take_noted(nodes: Nodes, node: int, kind: int, before: Amounts) -> None:
    """Put a task on a node, and note what was free there and how far it was used, (resources + 1,)."""
    for resource in range(nodes.free.shape[1]):
        before[resource] = nodes.free[node, resource]
    before[nodes.free.shape[1]] = nodes.used[node]
    _take(nodes, node, nodes.demands[kind])


@inlined
def _put_back(nodes: Nodes, node: int, before: Amounts) -> None:
    """Let a node be as it was noted, to the last bit."""
    for resource in range(nodes.free.shape[1]):
        nodes.free[node, resource] = before[resource]
    nodes.used[node] = before[nodes.free.shape[1]]
    changed(nodes.ranks, node)


@inlined
def _take(nodes: Nodes, node: int, demand: Amounts) -> None:
    take(nodes.free, nodes.used, nodes.capacity, node, demand)
    changed(nodes.ranks, node)
