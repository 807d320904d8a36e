"""This module builds VL2 networks: racks under pairs of aggregation switches, which all intermediate ones join."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dl2_scheduler.cluster.compiled import compiled, inlined
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.hardware.topology import Topology, flow_hash, from_the_lower, mixed, oversubscribed


def vl2(
    k: int = 20,
    rack: int = 20,
    gbps: Sequence[float] = (1.0, 10.0, 10.0),
    oversubscription: float = 1.0,
    seed: int = 0,
) -> Topology:
    """Return k aggregation switches, k / 2 intermediate ones, and k^2 / 4 racks, each linked to two of the former.

    A partition is an aggregation switch with the k / 4 racks whose first link goes to it. Second links of a partition's
    racks go to different switches, so that two racks of it are joined over its own switch alone. Vertices are the
    nodes, the racks' switches (partition by partition), the aggregation and the intermediate switches.

    Args:
        k: ports of an aggregation and of an intermediate switch.
        rack: nodes in each.
        gbps: capacity of the links at nodes, at racks' switches and at intermediate ones, in Gb/s.
        oversubscription: what divides the capacity of the links above the racks.
        seed: of the hash by which flows choose among equally short paths.

    Raises:
        BadInput: `k` is no multiple of 4.
    """
    if k < 4 or k % 4:
        raise BadInput(f"a VL2 network of {k}: give a multiple of 4")
    racks, between = k * (k // 4), k // 2
    nodes = racks * rack
    aggregation, intermediate = nodes + racks, nodes + racks + k
    node, uplink, trunk = np.arange(nodes), np.arange(2 * racks), np.arange(k * between)
    over = [_aggregation(k, each // 2, each % 2) for each in uplink.tolist()]
    ends = [
        np.column_stack([node, nodes + node // rack]),
        np.column_stack([nodes + uplink // 2, aggregation + np.array(over)]),
        np.column_stack([aggregation + trunk // between, intermediate + trunk % between]),
    ]
    tier = np.repeat(np.arange(3), [len(each) for each in ends])
    capacity = np.array(oversubscribed(gbps, oversubscription))[tier]
    partition_of = node // rack // (k // 4)
    return Topology(capacity, tier, np.concatenate(ends), partition_of, 6, partial(_write_routes, k, rack, seed))


@inlined
def _aggregation(k: int, rack: int, uplink: int) -> int:
    """Return the aggregation switch that the first or the second link of a rack goes to."""
    partition, place = rack // (k // 4), rack % (k // 4)
    return (partition + uplink * (1 + place)) % k


@compiled
def _write_routes(k: int, rack: int, seed: int, sources: Ints, targets: Ints, flows: Ints, rows: Ints) -> None:
    racks = k * (k // 4)
    uplinks, trunks = racks * rack, racks * rack + 2 * racks
    for pair in range(len(flows)):
        row, last = rows[pair], 1
        low, high = from_the_lower(sources[pair], targets[pair], row)
        if low == high:
            continue
        from_rack, to_rack = low // rack, high // rack
        if from_rack != to_rack:
            chosen = flow_hash(seed, low, high, flows[pair])
            up, down = _shared_uplinks(k, from_rack, to_rack, chosen)
            last = 3
            if up < 0:
                up, down, by = chosen % 2, mixed(chosen, 1) % 2, mixed(chosen, 2) % (k // 2)
                row[2] = trunks + _aggregation(k, from_rack, up) * (k // 2) + by
                row[3] = trunks + _aggregation(k, to_rack, down) * (k // 2) + by
                last = 5
            row[1], row[last - 1] = uplinks + 2 * from_rack + up, uplinks + 2 * to_rack + down
        row[last] = high


@compiled
def _shared_uplinks(k: int, a: int, b: int, chosen: int) -> tuple[int, int]:
    """Return the uplinks of two racks to an aggregation switch that both are linked to; -1 where there is none."""
    for turn in range(2):
        up = (chosen + turn) % 2
        for down in range(2):
            if _aggregation(k, a, up) == _aggregation(k, b, down):
                return up, down
    return -1, -1
