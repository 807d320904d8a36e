"""This module describes how nodes are linked: links with their capacities, routes over them, partitions of nodes.

Links are undirected and full duplex. In a step of a parameter-server job a worker's push and pull take the same links
in opposite directions with the same volume, so that one flow for a pair of worker and server says it all: what it takes
of a link, it takes in both directions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dl2_scheduler.cluster.compiled import compiled, inlined
from dl2_scheduler.cluster.hardware.machines import Floats, Ints

NO_LINK = -1
"""Stands in a row of links after the route's last one."""

Router = Callable[[Ints, Ints, Ints, Ints], None]
"""Writes the links between sources and targets, with numbers of flows, into rows that hold NO_LINK: compiled."""


class Routes(NamedTuple):
    """`Routes` are the links that flows take, flow by flow: those of flow f are `links[start[f] : start[f + 1]]`.

    Attributes:
        start: where the links of each flow begin, and where the last one's end, (flows + 1,).
        links: their ids.
    """

    start: Ints
    links: Ints


@dataclass(frozen=True, eq=False)
class Topology:
    """A `Topology` is the network of a cluster; its first vertices are the nodes, the others are switches.

    Attributes:
        capacity: of each link, in each direction, in Gb/s, (links,).
        tier: of each link, 0 at the nodes, (links,).
        ends: the two vertices of each link, (links, 2).
        partition_of: the partition of each node, (nodes,).
        longest: links of the longest route.
        router: what finds the routes.
    """

    capacity: Floats
    tier: Ints
    ends: Ints
    partition_of: Ints
    longest: int
    router: Router

    @property
    def partitions(self) -> int:
        """Return how many partitions there are."""
        return int(self.partition_of.max()) + 1

    @cached_property
    def switches_of(self) -> tuple[tuple[int, ...], ...]:
        """The vertices that each node is linked to, in the order of its links."""
        found: list[list[int]] = [[] for _ in self.partition_of]
        for one, other in self.ends.tolist():
            if one < len(found):
                found[one].append(other)
        return tuple(tuple(each) for each in found)

    def route(self, a: int, b: int, flow: int = 0) -> Ints:
        """Return the links between two nodes in their order from the lower node on; none on the same node.

        Args:
            a: a node.
            b: the other one.
            flow: a number that chooses among paths that are equally short, by a seeded hash: always the same one.
        """
        return self.routes([a], [b], [flow]).links

    def routes(self, sources: ArrayLike, targets: ArrayLike, flows: ArrayLike) -> Routes:
        """Return the routes of many pairs of nodes at once, as `route` has them.

        Args:
            sources: a node of each pair, (pairs,).
            targets: its other node, (pairs,).
            flows: the number of its flow, (pairs,).
        """
        of, to, by = (np.ascontiguousarray(each, dtype=np.int64) for each in (sources, targets, flows))
        rows = np.full((len(of), self.longest), NO_LINK)
        self.router(of, to, by, rows)
        return Routes(*_joined(rows))


@compiled
def _joined(rows: Ints) -> tuple[Ints, Ints]:
    """Return where each row's links begin, and all of them."""
    start = np.zeros(len(rows) + 1, dtype=np.int64)
    links = np.empty(rows.size, dtype=np.int64)
    count = 0
    for row in range(len(rows)):
        for link in rows[row]:
            if link == NO_LINK:
                break
            links[count] = link
            count += 1
        start[row + 1] = count
    return start, links[:count].copy()


def oversubscribed(gbps: Sequence[float], oversubscription: float) -> list[float]:
    """Return the capacities of links by tier, those above the lowest divided by a factor."""
    return [gbps[0], *(each / oversubscription for each in gbps[1:])]


@inlined
def mixed(state: int, value: int) -> int:
    """Return a hash of a hash and a number, of 32 bits."""
    state = (state ^ value) & 0xFFFFFFFF
    for _ in range(2):
        state = ((state ^ (state >> 16)) * 0x45D9F3B) & 0xFFFFFFFF  # below 2**59: signed integers hold it
    return state ^ (state >> 16)


@inlined
def from_the_lower(source: int, target: int, row: Ints) -> tuple[int, int]:
    """Return two nodes, the lower first, and write its link into their row, unless they are the same.

    Args:
        source: a node.
        target: the other one.
        row: of the route's links; link n is node n's.
    """
    low, high = min(source, target), max(source, target)
    if low != high:
        row[0] = low
    return low, high


@inlined
def flow_hash(seed: int, low: int, high: int, flow: int) -> int:
    """Return the hash that chooses a flow's path.

    Args:
        seed: of the topology.
        low: the lower of its two nodes.
        high: the other one.
        flow: its number between them.
    """
    return mixed(mixed(mixed(mixed(0x9E3779B9, seed), low), high), flow)
