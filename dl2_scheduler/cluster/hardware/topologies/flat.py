"""This module builds the simplest network: every node has one link, to a switch that never blocks."""

import numpy as np
from numpy.typing import ArrayLike

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Ints, Machines
from dl2_scheduler.cluster.hardware.topology import Topology


def flat(nic_gbps: ArrayLike) -> Topology:
    """Return nodes around one switch, in one partition; link n is node n's.

    Args:
        nic_gbps: capacity of each node's link, in Gb/s, (nodes,).
    """
    capacity = np.array(nic_gbps, dtype=float)
    nodes = len(capacity)
    ends = np.column_stack([np.arange(nodes), np.full(nodes, nodes)])
    none = np.zeros(nodes, dtype=np.int64)
    return Topology(capacity, none, ends, none, longest=2, router=_write_routes)


def flat_of(machines: Machines) -> Topology:
    """Return the nodes of a cluster around one switch."""
    return flat([node.nic_gbps for node in machines.nodes])


@compiled
def _write_routes(sources: Ints, targets: Ints, flows: Ints, rows: Ints) -> None:
    for pair in range(len(flows)):
        if sources[pair] != targets[pair]:
            rows[pair, 0] = min(sources[pair], targets[pair])
            rows[pair, 1] = max(sources[pair], targets[pair])
