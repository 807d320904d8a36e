"""This module builds fat-trees: pods of edge and aggregation switches, joined by core switches."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.hardware.topology import Topology, flow_hash, from_the_lower, mixed, oversubscribed


def fat_tree(
    k: int = 20,
    gbps: Sequence[float] = (10.0, 20.0, 40.0),
    oversubscription: float = 1.0,
    seed: int = 0,
    *,
    pods: int | None = None,
    rack: int | None = None,
) -> Topology:
    """Return a fat-tree of k pods, each a partition of (k / 2)^2 nodes under k / 2 edge switches; or a part of it.

    Vertices are the nodes, the edge switches, the aggregation switches (both pod by pod) and the (k / 2)^2 core
    switches; aggregation switch j of every pod is linked to the j-th k / 2 of these.

    Args:
        k: pods, and ports of a switch.
        gbps: capacity of the links at nodes, below aggregation and below core switches, in Gb/s.
        oversubscription: what divides the capacity of the links above the edge switches.
        seed: of the hash by which flows choose among equally short paths.
        pods: how many there are, of the k.
        rack: nodes under an edge switch, in place of k / 2.

    Raises:
        BadInput: `k` is odd or less than 2; or there are no pods or more than `k`, or no nodes.
    """
    if k < 2 or k % 2:
        raise BadInput(f"a fat-tree of {k}: give an even number from 2 on")
    half = k // 2
    pods, rack = k if pods is None else pods, half if rack is None else rack
    if not 1 <= pods <= k or rack < 1:
        raise BadInput(f"{pods} pods with racks of {rack}: give 1 to {k} pods, and a node or more")
    switches = pods * half
    nodes, ports = switches * rack, switches * half
    edge, aggregation, core = nodes, nodes + switches, nodes + 2 * switches
    node, switch, port = np.arange(nodes), np.repeat(np.arange(switches), half), np.tile(np.arange(half), switches)
    ends = [
        np.column_stack([node, edge + node // rack]),
        np.column_stack([edge + switch, aggregation + switch // half * half + port]),
        np.column_stack([aggregation + switch, core + switch % half * half + port]),
    ]
    tier = np.repeat(np.arange(3), [nodes, ports, ports])
    capacity = np.array(oversubscribed(gbps, oversubscription))[tier]
    router = partial(_write_routes, half, rack, pods, seed)
    return Topology(capacity, tier, np.concatenate(ends), node // (half * rack), 6, router)


@compiled
def _write_routes(
    half: int, rack: int, pods: int, seed: int, sources: Ints, targets: Ints, flows: Ints, rows: Ints
) -> None:
    nodes, ports = pods * half * rack, pods * half * half
    for pair in range(len(flows)):
        row, last = rows[pair], 1
        low, high = from_the_lower(sources[pair], targets[pair], row)
        if low == high:
            continue
        from_edge, to_edge = low // rack, high // rack
        if from_edge != to_edge:
            chosen = flow_hash(seed, low, high, flows[pair])
            plane = chosen % half  # the aggregation switch of a pod that all of the way goes over
            row[1] = nodes + from_edge * half + plane
            last = 3
            if from_edge // half != to_edge // half:
                port = mixed(chosen, 1) % half
                row[2] = nodes + ports + (from_edge // half * half + plane) * half + port
                row[3] = nodes + ports + (to_edge // half * half + plane) * half + port
                last = 5
            row[last - 1] = nodes + to_edge * half + plane
        row[last] = high
