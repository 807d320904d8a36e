"""This module chooses which nodes leave when some cannot reach others: a pure function of who cannot reach whom."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from elastic_ps.core.configuration import NodeId

Pair = frozenset[NodeId]
"""Two nodes of which one cannot reach the other; in which direction does not matter."""

_EXACT = 12
"""Up to so many pairs every cover is looked at: at most two to the power of it."""


def best_cut(pairs: Collection[Pair], cost: Callable[[frozenset[NodeId]], Any]) -> frozenset[NodeId]:
    """Return the cheapest set of nodes without which all that remain reach one another.

    Up to 12 pairs the answer is exact. Beyond, it is the cheaper one of two covers: the nodes that are in most pairs,
    one after another; and the same where a node that is in any pair may be taken only as the cheaper end of it.

    Args:
        pairs: who cannot reach whom; none: nobody leaves.
        cost: of removing a set; compared with `<`, equal only for equal sets. It must not fall when a set grows.
    """
    if len(pairs) <= _EXACT:
        return min(_covers(list(pairs)), key=cost)
    return min(_by_degree(pairs), _by_cost(pairs, cost), key=cost)


def _covers(pairs: list[Pair]) -> list[frozenset[NodeId]]:
    """Return every set that has an end of each pair, each grown pair by pair without a needless node."""
    found: set[frozenset[NodeId]] = {frozenset()}
    for pair in pairs:
        found = {cover | ({end} if not cover & pair else frozenset()) for cover in found for end in pair}
    return sorted(found, key=sorted)


def _by_degree(pairs: Collection[Pair]) -> frozenset[NodeId]:
    left, gone = set(pairs), set[NodeId]()
    while left:
        degrees = Counter(end for pair in left for end in pair)
        worst = max(degrees, key=lambda name: (degrees[name], name))
        gone.add(worst)
        left = {pair for pair in left if worst not in pair}
    return frozenset(gone)


def _by_cost(pairs: Collection[Pair], cost: Callable[[frozenset[NodeId]], Any]) -> frozenset[NodeId]:
    gone: frozenset[NodeId] = frozenset()
    for pair in sorted(pairs, key=sorted):
        if not gone & pair:
            gone |= {min(pair, key=lambda name: cost(frozenset({name})))}
    return gone
