"""This module builds the clusters of the graph scheduler's paper, and small ones that are like them for tests."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np

from dl2_scheduler.cluster.hardware.machines import (
    GRAPH,
    GRAPH_NARROW,
    GRAPH_UNEVEN,
    GRAPH_WIDE,
    Hardware,
    Machines,
)
from dl2_scheduler.cluster.hardware.topologies.bcube import bcube
from dl2_scheduler.cluster.hardware.topologies.fat_tree import fat_tree
from dl2_scheduler.cluster.hardware.topologies.vl2 import vl2
from dl2_scheduler.cluster.hardware.topology import Topology


class NetworkType(StrEnum):
    """A `NetworkType` is one of the paper's three."""

    FAT_TREE = "fat-tree"
    VL2 = "vl2"
    BCUBE = "bcube"


class ServerType(StrEnum):
    """A `ServerType` says what the servers of a cluster are; the paper numbers all but the default."""

    DEFAULT = "default"
    WIDE = "i"
    UNEVEN = "ii"
    MIXED = "iii"


_SERVERS: Mapping[ServerType, Hardware] = {
    ServerType.DEFAULT: GRAPH,
    ServerType.WIDE: GRAPH_WIDE,
    ServerType.UNEVEN: GRAPH_UNEVEN,
}
_NARROW_PART, _DEFAULT_PART = 0.2, 0.4  # of a partition's servers in type (iii); the others are of type (i)


SMALL_RACK = 4
"""Servers under an edge switch of the small fat-tree."""


def graph_topology(
    network: NetworkType,
    small: bool = False,
    oversubscription: float = 1.0,
    seed: int = 0,
    rack: int = SMALL_RACK,
) -> Topology:
    """Return a network of the paper, or a small one of its kind.

    The paper's have 20 partitions of 100 servers (fat-tree, VL2), or 18 of 72 (BCube). Small ones have 2 partitions of
    20 servers, 4 of 10, and 2 of 32.

    Args:
        network: which.
        small: for tests, and for training without patience.
        oversubscription: what divides the capacity of the links above the lowest.
        seed: of the hash by which flows choose among equally short paths.
        rack: servers under each of the five edge switches of a partition of the small fat-tree.
    """
    if network is NetworkType.FAT_TREE:
        if small:
            return fat_tree(10, oversubscription=oversubscription, seed=seed, pods=2, rack=rack)
        return fat_tree(20, oversubscription=oversubscription, seed=seed)
    if network is NetworkType.VL2:
        return vl2(*((4, 10) if small else (20, 20)), oversubscription=oversubscription, seed=seed)
    n, gbps = (4, (10.0, 10.0, 20.0)) if small else (6, (10.0, 10.0, 20.0, 40.0))
    return bcube(n, gbps, oversubscription, seed)


def graph_machines(servers: ServerType, topology: Topology, seed: int = 0) -> Machines:
    """Return the servers of a cluster.

    Args:
        servers: their type.
        topology: that links them.
        seed: of where in a partition servers of a mixed cluster are.
    """
    gbps = float(topology.capacity[0])  # of the first server
    if servers is not ServerType.MIXED:
        return Machines.alike(replace(_SERVERS[servers], nic_gbps=gbps), len(topology.partition_of))
    rng = np.random.default_rng(seed)
    kinds = np.zeros(len(topology.partition_of), dtype=np.int64)
    for partition in range(topology.partitions):
        nodes = rng.permutation(np.flatnonzero(topology.partition_of == partition))
        bounds = np.round(len(nodes) * np.cumsum([_NARROW_PART, _DEFAULT_PART])).astype(int)
        for kind, those in enumerate(np.split(nodes, bounds)):
            kinds[those] = kind
    hardware = [replace(each, nic_gbps=gbps) for each in (GRAPH_NARROW, GRAPH, GRAPH_WIDE)]
    return Machines(tuple(hardware[kind] for kind in kinds))
