"""This module says how fast workers and servers exchange parameters, given where they lie.

In a step a worker sends gradients to each server of its job and gets parameters back: the same volume in both
directions of the same full-duplex links, so that one flow stands for both. A flow runs on the links between the two
nodes, and on one thread of each of the two tasks, which several flows of a task share.
"""

from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, PlacementArrays
from dl2_scheduler.cluster.hardware.topology import Routes, Topology
from dl2_scheduler.sim.placed.change import LinkUse, link_use
from dl2_scheduler.sim.placed.network import MB_A_SECOND, max_min, with_senders
from dl2_scheduler.sim.placed.traits import Needs

_TWO_THREADS = 1.7
"""What a task with two flows or more sends, over what it sends with one (9.7 and 5.7 Gb/s were measured)."""
_MOST_SERVERS = 256  # of a job
_MB, _COMPUTED, WIRE, _WITHIN = range(4)  # columns of `Needs.exchange`


class Pairs(NamedTuple):
    """`Pairs` are each worker with each server of its job, worker by worker.

    Attributes:
        start: the first pair of each worker, by the order of workers among the tasks, (workers + 1,).
        workers: tasks that are workers, (workers,).
        worker: index of the worker's task, (pairs,).
        server: index of the server's task, (pairs,).
        rank: of the server among those of its job: the first one holds what cannot be split, (pairs,).
    """

    start: Ints
    workers: Ints
    worker: Ints
    server: Ints
    rank: Ints


class Exchanges(NamedTuple):
    """`Exchanges` are what pairs do in a step.

    Attributes:
        part: MB that each sends and gets, (pairs,).
        seconds: that each takes, were there no wire between nodes, (pairs,).
        apart: indices of the pairs that do not share a node.
    """

    part: Floats
    seconds: Floats
    apart: Ints


@compiled
def pairs_of(job: Ints, role: Ints, jobs: int) -> Pairs:
    """Return the pairs of all jobs.

    Args:
        job: of each task, (tasks,).
        role: of each task, (tasks,).
        jobs: how many there are.
    """
    first = np.zeros(jobs + 1, dtype=np.int64)
    for task in range(len(job)):
        first[job[task] + 1] += role[task] == SERVER
    first = np.cumsum(first)
    servers, filled = np.empty(first[-1], dtype=np.int64), first[:-1].copy()
    workers, start, count = np.empty(len(job), dtype=np.int64), np.zeros(len(job) + 1, dtype=np.int64), 0
    for task in range(len(job)):
        if role[task] == SERVER:
            servers[filled[job[task]]] = task
            filled[job[task]] += 1
        else:
            workers[count] = task
            start[count + 1] = start[count] + first[job[task] + 1] - first[job[task]]
            count += 1
    found = np.empty((3, start[count]), dtype=np.int64)
    for number in range(count):
        task = workers[number]
        for rank in range(start[number + 1] - start[number]):
            found[:, start[number] + rank] = task, servers[first[job[task]] + rank], rank
    return Pairs(start[: count + 1], workers[:count], found[0], found[1], found[2])


@compiled
def exchanges_of(pairs: Pairs, model: Ints, node: Ints, computing: Floats, needs: Needs) -> Exchanges:
    """Return what all pairs do.

    Args:
        pairs: of all jobs.
        model: of each task, (tasks,).
        node: of each task, (tasks,).
        computing: slowdown of each task, (tasks,).
        needs: of the models.
    """
    part, seconds = np.empty(len(pairs.worker)), np.empty(len(pairs.worker))
    apart, count = np.empty(len(pairs.worker), dtype=np.int64), 0
    sharing = np.zeros(len(node), dtype=np.int64)  # workers of each server
    for server in pairs.server:
        sharing[server] += 1
    for number in range(len(pairs.workers)):
        servers = pairs.start[number + 1] - pairs.start[number]
        for pair in range(pairs.start[number], pairs.start[number + 1]):
            worker, server = pairs.worker[pair], pairs.server[pair]
            of, hottest = model[worker], needs.hottest[model[worker]]
            size = needs.exchange[of]
            even = (1.0 - hottest) / servers
            part[pair] = size[_MB] * (hottest + even if pairs.rank[pair] == 0 else even)
            crowd = sharing[server] ** needs.crowding[of]
            seconds[pair] = part[pair] * crowd / size[_COMPUTED] * (1.0 + computing[server])
            if node[worker] == node[server]:
                seconds[pair] += part[pair] / size[_WITHIN]
            else:
                apart[count] = pair
                count += 1
    return Exchanges(part, seconds, apart[:count])


def routes_of(topology: Topology, placements: PlacementArrays, pairs: Pairs, apart: Ints, node: Ints) -> Routes:
    """Return the routes of pairs that do not share a node.

    Args:
        topology: of the nodes.
        placements: of all tasks.
        pairs: of them.
        apart: indices of the pairs.
        node: of each task, (tasks,).
    """
    worker, server = pairs.worker[apart], pairs.server[apart]
    flow = flow_numbers(placements, placements.job[worker], pairs.rank[apart])
    return topology.routes(node[worker], node[server], flow)


def flow_numbers(placements: PlacementArrays, job: Ints, rank: Ints) -> Ints:
    """Return the numbers by which flows choose among equal paths, (pairs,).

    Args:
        placements: of all tasks.
        job: of each pair, (pairs,).
        rank: of each pair's server, (pairs,).
    """
    found: Ints = _MOST_SERVERS * placements.number[job] + rank
    return found


class Crossing(NamedTuple):
    """These are the pairs that exchange over the network.

    Attributes:
        pairs: all of them.
        apart: indices of those that do not share a node.
        routes: of these.
    """

    pairs: Pairs
    apart: Ints
    routes: Routes


def crossing_of(machines: Machines, topology: Topology, placements: PlacementArrays) -> Crossing:
    """Return the pairs of all jobs, and the routes of those that do not share a node.

    Args:
        machines: on which tasks lie.
        topology: of the nodes.
        placements: of all tasks.
    """
    pairs = pairs_of(placements.job, placements.role, len(placements.model))
    node = machines.node_of[placements.group]
    apart = np.flatnonzero(node[pairs.worker] != node[pairs.server])
    return Crossing(pairs, apart, routes_of(topology, placements, pairs, apart, node))


def use_of(topology: Topology, placements: PlacementArrays, crossing: Crossing, wanted: Floats) -> LinkUse:
    """Return what links the flows of all jobs take.

    Args:
        topology: of the nodes.
        placements: of all tasks.
        crossing: their pairs.
        wanted: what each of a job's flows wants of its links, (jobs,).
    """
    whose = placements.job[crossing.pairs.worker[crossing.apart]]
    return link_use(whose, crossing.routes, wanted, len(topology.capacity))


@compiled
def wire_speeds(capacity: Floats, routes: Routes, senders: Ints, wire: Floats) -> Floats:
    """Return the MB/s of flows between nodes, (flows,).

    Args:
        capacity: of each link of the network, in Gb/s, (links,).
        routes: of the flows.
        senders: the worker's task and the server's, (flows, 2).
        wire: MB/s that one flow of a task can get, (tasks,).
    """
    flows = np.zeros(len(wire), dtype=np.int64)
    for task in senders.ravel():
        flows[task] += 1
    alone = wire / MB_A_SECOND
    threads = alone * np.where(flows > 1, _TWO_THREADS, 1.0)
    every, by_thread = with_senders(capacity, routes, senders, threads)
    return MB_A_SECOND * max_min(every, by_thread.start, by_thread.links, alone[senders[:, 0]])
