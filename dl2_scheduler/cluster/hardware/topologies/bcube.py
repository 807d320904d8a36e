"""This module builds BCube networks: nodes with a link on each level, which pass on what others send."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.hardware.topology import Topology, flow_hash, mixed, oversubscribed


def bcube(
    n: int = 6, gbps: Sequence[float] = (10.0, 10.0, 20.0, 40.0), oversubscription: float = 1.0, seed: int = 0
) -> Topology:
    """Return n^levels nodes, each with one link on every level; a partition is two BCubes of two levels, 2 n^2 nodes.

    Nodes are numbers of so many digits to the base n. A switch joins the n nodes that differ in the digit of its level
    alone. A route corrects the digits in which its nodes differ one by one, over nodes between them, in an order that
    the flow's hash chooses. Link `level * nodes + node` is a node's; vertices are the nodes, then the switches level by
    level.

    Args:
        n: ports of a switch.
        gbps: capacity of links on each level, in Gb/s; there are as many levels.
        oversubscription: what divides the capacity of the links above the lowest level.
        seed: of the hash by which flows choose among equally short paths.

    Raises:
        BadInput: a switch has one port or none, or there is no level.
    """
    if n < 2 or not gbps:
        raise BadInput(f"a BCube of {n} ports and {len(gbps)} levels: give at least 2 ports and a level")
    levels = len(gbps)
    nodes, switches = n**levels, n ** (levels - 1)
    tier, node = np.repeat(np.arange(levels), nodes), np.tile(np.arange(nodes), levels)
    digit = n**tier
    switch = node // (digit * n) * digit + node % digit  # the node without the digit of the level
    ends = np.column_stack([node, nodes + tier * switches + switch])
    capacity = np.array(oversubscribed(gbps, oversubscription))[tier]
    partition_of = np.arange(nodes) // (2 * n**2)
    return Topology(capacity, tier, ends, partition_of, 2 * levels, partial(_write_routes, n, nodes, seed))


@compiled
def _write_routes(n: int, nodes: int, seed: int, sources: Ints, targets: Ints, flows: Ints, rows: Ints) -> None:
    levels = rows.shape[1] // 2
    wrong = np.empty(levels, dtype=np.int64)
    for pair in range(len(flows)):
        low, high = min(sources[pair], targets[pair]), max(sources[pair], targets[pair])
        left = 0
        for level in range(levels):
            if low // n**level % n != high // n**level % n:
                wrong[left] = level
                left += 1
        state, at, hop = flow_hash(seed, low, high, flows[pair]), low, 0
        while left > 0:
            choice = state % left
            level = wrong[choice]
            left -= 1
            wrong[choice] = wrong[left]
            through = at + (high // n**level % n - at // n**level % n) * n**level
            rows[pair, hop], rows[pair, hop + 1] = level * nodes + at, level * nodes + through
            state, at, hop = mixed(state, 1), through, hop + 2
