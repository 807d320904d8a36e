"""This module lists the places that a job may have with a cluster to itself: what bounds its speed from above."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats, Hardware, Machines, Socket
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.topology import Topology

Counts = tuple[int, int]
"""Workers and servers."""
OfNode = tuple[Counts, ...]
"""What lies on each socket of a node."""
Places = tuple[list[int], list[int]]
"""The group of each worker, and of each server."""

_MOST_NODES = 2


def places_alone(machines: Machines, topology: Topology, demand: Floats, counts: Counts) -> Iterator[Places]:
    """Yield where a job can lie in an empty cluster, each place once that is not another's twin.

    Twins differ by which of several nodes of the same hardware have what, or which of a node's sockets of a kind, or by
    the order of tasks; but which server is the first one counts, as it holds what cannot be split. The nodes are those
    of one hardware, the nearest to the first of them. Of nodes with several sockets no place has more than two: there
    are too many, and a third only adds ways over the network to what the sockets of two can do.

    Args:
        machines: of the cluster.
        topology: of the cluster.
        demand: what a worker and a server take, (2, 2): by role, then cpus and GPUs.
        counts: how many it has.

    Yields:
        The group of each worker, and of each server.
    """
    takes = tuple((float(cpus), float(gpus)) for cpus, gpus in demand)
    for hardware in dict.fromkeys(machines.nodes):
        alike = [node for node, each in enumerate(machines.nodes) if each == hardware]
        away = [len(topology.route(alike[0], node, 0)) for node in alike]
        nearest = [machines.groups_of[node] for _, node in sorted(zip(away, alike, strict=True))]
        most = len(nearest) if len(hardware.sockets) == 1 else min(_MOST_NODES, len(nearest))
        for nodes in _over_nodes(counts, _on_node(hardware, takes, counts), most):
            yield from _by_first_server(nearest, nodes)


def _by_first_server(groups_of: Sequence[tuple[int, ...]], nodes: Sequence[OfNode]) -> Iterator[Places]:
    """Yield the groups of tasks, once for each kind of socket on which the first server may lie."""
    on = [
        (group, of_socket, of_node)
        for groups, of_node in zip(groups_of, nodes, strict=False)  # nodes without tasks are not in it
        for group, of_socket in zip(groups, of_node, strict=True)
    ]
    workers = [group for group, tasks, _ in on for _ in range(tasks[WORKER])]
    servers = [group for group, tasks, _ in on for _ in range(tasks[SERVER])]
    for first in {(tasks, node): group for group, tasks, node in reversed(on) if tasks[SERVER]}.values():
        yield workers, sorted(servers, key=lambda group: group != first)


def _over_nodes(left: Counts, ways: Sequence[OfNode], nodes: int) -> Iterator[list[OfNode]]:
    """Yield what lies on each node that has tasks: ways in the order of their list, so that no two are twins."""
    if left == (0, 0):
        yield []
    elif nodes:
        for number, way in enumerate(ways):
            workers, servers = (have - sum(tasks[role] for tasks in way) for role, have in enumerate(left))
            if min(workers, servers) >= 0:
                for others in _over_nodes((workers, servers), ways[number:], nodes - 1):
                    yield [way, *others]


@lru_cache
def _on_node(hardware: Hardware, takes: tuple[tuple[float, float], ...], most: Counts) -> list[OfNode]:
    """Return what may lie on a node, some task at least."""
    found: list[OfNode] = [()]
    for number, socket in enumerate(hardware.sockets):
        ways = [(w, s) for w in range(most[0] + 1) for s in range(most[1] + 1) if _fits(socket, takes, (w, s))]
        twin = number and hardware.sockets[number - 1] == socket
        found = [(*node, way) for node in found for way in ways if not twin or way <= node[-1]]
    return [node for node in found if any(any(tasks) for tasks in node)]


def _fits(socket: Socket, takes: tuple[tuple[float, float], ...], counts: Counts) -> bool:
    cpus, gpus = (sum(count * role[kind] for count, role in zip(counts, takes, strict=True)) for kind in (0, 1))
    return cpus <= socket.cpus + SLACK and gpus <= socket.gpus + SLACK
