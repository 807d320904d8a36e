"""This module makes graphs of a cluster: one of the inside of each partition, and one of the partitions.

Inside are the groups of GPUs, the processors on which they hang, and the switches that only this partition is linked
to; those above the racks' are one vertex, as the paper has them. Which processor holds a node's links is unsaid: all.
Between partitions are the switches that more than one is linked to, with parallel links summed up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.policies.learnt.graph.edge_conv import F32, Edges

GROUP, PROCESSOR, SWITCH = 0, 1, 2
"""Kinds of vertices inside a partition."""
NUMBERS = 3
"""Of an edge: bandwidth, load, tier."""
_WIDEST = 300.0  # Gb/s, of a link between processors: a bandwidth of 1
_TIERS = 4.0
_PCIE_TIER, _QPI_TIER = -2.0, -1.0
_CROWD = 20.0  # flows for 10 Gb/s that are a load of 1


@dataclass(frozen=True)
class WiredGraph:
    """A `WiredGraph` has edges that are made of links.

    Attributes:
        edges: both directions of each.
        fixed: bandwidth and tier of each edge, (edges, 2).
        links: the network's links that each edge is made of, padded with -1, (edges, most).
        group: whose PCIe an edge is, -1: it is none, (edges,).
        gbps: bandwidth of each edge, (edges,).
    """

    edges: Edges
    fixed: F32
    links: Ints
    group: Ints
    gbps: Floats

    def numbers(self, flows: Floats, used: Floats) -> F32:
        """Return bandwidth, load and tier of each edge, (edges, NUMBERS).

        Args:
            flows: on each link of the network, (links,).
            used: part of each group's GPUs that is in use, (groups,).
        """
        padded = np.append(flows, 0.0)
        load = padded[self.links].sum(axis=1) / np.maximum(self.gbps, 1e-9) * (10.0 / _CROWD)
        load = np.where(self.group >= 0, used[self.group], load)
        return np.column_stack([self.fixed[:, 0], load, self.fixed[:, 1]]).astype(np.float32)


@dataclass(frozen=True)
class PodGraph(WiredGraph):
    """A `PodGraph` is the inside of a partition; its vertices are the groups, their processors, and switches.

    Attributes:
        groups: of the cluster that are its first vertices, in their order.
        kinds: of the vertices, (vertices,).
        node: of each group, numbered in this partition, (groups,).
        rack: of each group, numbered in this partition, (groups,).
    """

    groups: Ints
    kinds: Ints
    node: Ints
    rack: Ints


@dataclass(frozen=True, eq=False)
class ClusterGraphs:
    """These `ClusterGraphs` are all graphs of a cluster.

    Attributes:
        pods: the insides.
        between: the graph of partitions, which are its first vertices.
        place: of each group of the cluster among its partition's, (groups,).
    """

    pods: Sequence[PodGraph]
    between: WiredGraph
    place: Ints

    @cached_property
    def first(self) -> Ints:
        """The first vertex of each partition where the graphs are one, (partitions + 1,)."""
        return np.cumsum([0, *(len(pod.kinds) for pod in self.pods)])


@lru_cache(maxsize=32)
def cluster_graphs(machines: Machines, topology: Topology) -> ClusterGraphs:
    """Return the graphs of a cluster; the same ones where it has been asked for before."""
    owner = _owners(topology)
    pods = tuple(_pod_graph(machines, topology, owner, pod) for pod in range(topology.partitions))
    place = np.empty(len(machines.sockets), dtype=np.int64)
    for pod in pods:
        place[pod.groups] = np.arange(len(pod.groups))
    return ClusterGraphs(pods, _between(topology, owner), place)


def _owners(topology: Topology) -> Ints:
    """Return the partition of each vertex of the network; -1: it joins several, or none directly, (vertices,)."""
    vertices = int(topology.ends.max()) + 1
    owner = np.full(vertices, -1)
    owner[: len(topology.partition_of)] = topology.partition_of
    known = set(range(len(topology.partition_of)))
    for tier in range(int(topology.tier.max()) + 1):
        ends = topology.ends[topology.tier == tier]
        heard: dict[int, set[int]] = {}
        for below, above in ends.tolist():
            if above not in known:
                heard.setdefault(above, set()).add(int(owner[below]))
        for vertex, owners in heard.items():
            owner[vertex] = owners.pop() if len(owners) == 1 else -1
        known |= set(heard)
    return owner


@dataclass(frozen=True)
class _Wire:
    """A `_Wire` joins two vertices of a graph: links of the network, or what is inside a node."""

    ends: tuple[int, int]
    gbps: float
    tier: float
    links: tuple[int, ...] = ()
    group: int = -1


def _pod_graph(machines: Machines, topology: Topology, owner: Ints, pod: int) -> PodGraph:
    nodes = np.flatnonzero(topology.partition_of == pod)
    groups = np.flatnonzero(topology.partition_of[machines.node_of] == pod)
    local = {int(group): number for number, group in enumerate(groups)}
    count = len(groups)
    racks = sorted({each for node in nodes for each in topology.switches_of[node] if owner[each] == pod})
    above = 2 * count + len(racks)  # the one vertex of all switches above the racks'
    switch = {each: 2 * count + number for number, each in enumerate(racks)}
    wires: list[_Wire] = []
    for node in nodes.tolist():
        own = [local[group] for group in machines.groups_of[node]]
        for group in machines.groups_of[node]:
            at = local[group]
            wires.append(_Wire((at, count + at), machines.sockets[group].pcie_gbps, _PCIE_TIER, group=group))
        wires += [
            _Wire((count + one, count + other), machines.nodes[node].qpi_gbps, _QPI_TIER)
            for number, one in enumerate(own)
            for other in own[number + 1 :]
        ]
    joined: dict[tuple[int, int], list[int]] = {}
    for link, (below, higher) in enumerate(topology.ends.tolist()):
        if owner[below] != pod or owner[higher] != pod:
            continue
        target = switch.get(higher, above)
        if below < len(topology.partition_of):
            for group in machines.groups_of[below]:
                joined.setdefault((count + local[group], target), []).append(link)
        else:
            joined.setdefault((switch.get(below, above), target), []).append(link)
    wires += _network_wires(topology, joined)
    vertices = above + any(above in pair for pair in joined)
    kinds = np.repeat([GROUP, PROCESSOR, SWITCH], [count, count, vertices - 2 * count])
    _, node_numbers = np.unique(machines.node_of[groups], return_inverse=True)
    _, rack_numbers = np.unique(
        [topology.switches_of[machines.node_of[group]][0] for group in groups], return_inverse=True
    )
    return PodGraph(*_wired(wires, vertices), groups, kinds, node_numbers, rack_numbers)


def _between(topology: Topology, owner: Ints) -> WiredGraph:
    pods = topology.partitions
    joined: dict[tuple[int, int], list[int]] = {}
    number: dict[int, int] = {}
    for link, (below, higher) in enumerate(topology.ends.tolist()):
        if owner[below] >= 0 and owner[higher] < 0:
            at = number.setdefault(higher, pods + len(number))
            joined.setdefault((int(owner[below]), at), []).append(link)
    wires = list(_network_wires(topology, joined))
    return WiredGraph(*_wired(wires, pods + len(number)))


def _network_wires(topology: Topology, joined: "dict[tuple[int, int], list[int]]") -> Iterable[_Wire]:
    for ends, links in joined.items():
        if ends[0] != ends[1]:
            yield _Wire(ends, float(topology.capacity[links].sum()), float(topology.tier[links[0]]), tuple(links))


def _wired(wires: Sequence[_Wire], vertices: int) -> tuple[Edges, F32, Ints, Ints, Floats]:
    """Return the fields of a `WiredGraph`."""
    both = [(wire.ends[1 - turn], wire.ends[turn], wire) for wire in wires for turn in (0, 1)]
    both.sort(key=lambda each: each[0])
    target = np.array([each[0] for each in both], dtype=np.int64)
    source = np.array([each[1] for each in both], dtype=np.int64)
    start = np.searchsorted(target, np.arange(vertices + 1))
    gbps = np.array([each[2].gbps for each in both])
    tier = np.array([each[2].tier for each in both])
    fixed = np.column_stack([gbps / _WIDEST, tier / _TIERS]).astype(np.float32)
    links = np.full((len(both), max((len(wire.links) for wire in wires), default=0) or 1), -1)
    for row, (_, _, wire) in enumerate(both):
        links[row, : len(wire.links)] = wire.links
    group = np.array([each[2].group for each in both], dtype=np.int64)
    return Edges(start, source), fixed, links, group, gbps
