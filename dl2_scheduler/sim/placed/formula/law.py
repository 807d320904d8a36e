"""This module computes what the graph scheduler's paper prints, compiled: loads, slowdowns, and rates of jobs.

A planner asks for the rates at many places of one job while all others stay: `tried_rates` answers all of it at once.
"""

from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.topology import Routes
from dl2_scheduler.sim.placed.exchange import Pairs
from dl2_scheduler.sim.placed.network import MB_A_SECOND, equal_share


class LawTables(NamedTuple):
    """These `LawTables` are what the law knows of a cluster.

    Attributes:
        node_of: the node of each group, (groups,).
        cores: of each group, (groups,).
        qpi: Gb/s between the groups of each node, (nodes,).
        capacity: of each link, in Gb/s, (links,).
        coefficients: alpha 1 to 3, lambda 1, beta 1 and 2, lambda 2, (7,).
    """

    node_of: Ints
    cores: Floats
    qpi: Floats
    capacity: Floats
    coefficients: Floats


class LawTasks(NamedTuple):
    """These `LawTasks` are all tasks, those of the job that is tried at other places behind the others.

    Attributes:
        jobs: seconds that a worker computes alone, MB, and samples of a step, of each job, (jobs, 3).
        job: of each task, (tasks,).
        group: of each task, (tasks,).
        use: cores, and Gb/s of PCIe, of each task, (tasks, 2).
        pairs: of all jobs.
        apart: those of other jobs that do not share a node.
        routes: of these.
    """

    jobs: Floats
    job: Ints
    group: Ints
    use: Floats
    pairs: Pairs
    apart: Ints
    routes: Routes


@compiled
def loads_of(job: Ints, group: Ints, node: Ints, use: Floats, cores: Floats, nodes: int) -> Floats:
    """Return what lies beside each task, (tasks, 4): see `formula.Loads`.

    Args:
        job: of each task, (tasks,).
        group: of each task, (tasks,).
        node: of each task, (tasks,).
        use: cores, and Gb/s of PCIe, of each task, (tasks, 2).
        cores: of each group, (groups,): who does not find one runs on another group of its node.
        nodes: how many there are.
    """
    start = np.zeros(nodes + 1, dtype=np.int64)
    for where in node:
        start[where + 1] += 1
    start = np.cumsum(start)
    order, filled = np.empty(len(node), dtype=np.int64), start[:-1].copy()
    for task in range(len(node)):
        order[filled[node[task]]] = task
        filled[node[task]] += 1
    found, elsewhere = np.zeros((len(node), 4)), np.zeros(len(cores))  # cores that others use on other groups
    for task in range(len(node)):
        here = order[start[node[task]] : start[node[task] + 1]]
        for other in here:
            elsewhere[group[other]] = 0.0
        for other in here:
            if job[other] == job[task]:
                continue
            if group[other] == group[task]:
                found[task, 0] += use[other, 0]
                found[task, 2] += use[other, 1]
            else:
                before = max(0.0, elsewhere[group[other]] - cores[group[other]])
                elsewhere[group[other]] += use[other, 0]
                found[task, 0] += max(0.0, elsewhere[group[other]] - cores[group[other]]) - before
        found[task, 1], found[task, 3] = use[task]
    return found


@compiled
def slowdowns_of(loads: Floats, coefficients: Floats) -> Floats:
    """Return what computing takes more, as a part of itself, (tasks,).

    Args:
        loads: see `loads_of`.
        coefficients: see `LawTables`.
    """
    a1, a2, a3, l1, b1, b2, l2 = coefficients
    found = np.zeros(len(loads))
    for task in range(len(loads)):
        beside_cpu, own_cpu, beside_pcie, own_pcie = loads[task]
        if beside_cpu > 0:
            found[task] += max(a1 * np.exp(a2 * beside_cpu + a3 * own_cpu) + l1, 0.0)
        if beside_pcie > 0:
            found[task] += max(b1 * beside_pcie + b2 * own_pcie + l2, 0.0)
    return found


@compiled
def rates_of(jobs: Floats, job: Ints, pairs: Pairs, gbps: Floats, slowed: Floats) -> Floats:
    """Return samples a second of each job, (jobs,).

    Args:
        jobs: see `LawTasks`.
        job: of each task, (tasks,).
        pairs: of all jobs.
        gbps: of each pair's flow, (pairs,).
        slowed: slowdown of each task, (tasks,).
    """
    computing, exchange, workers = np.zeros(len(jobs)), np.full(len(jobs), -1.0), np.zeros(len(jobs))
    for number in range(len(pairs.workers)):
        task, servers = pairs.workers[number], pairs.start[number + 1] - pairs.start[number]
        whose = job[task]
        workers[whose] += 1
        computing[whose] = max(computing[whose], jobs[whose, 0] * (1.0 + slowed[task]))
        for pair in range(pairs.start[number], pairs.start[number + 1]):
            exchange[whose] = max(exchange[whose], jobs[whose, 1] / servers / MB_A_SECOND / gbps[pair])
    rates = np.zeros(len(jobs))
    for whose in np.flatnonzero(exchange >= 0.0):  # who has both roles
        rates[whose] = jobs[whose, 2] / (computing[whose] / workers[whose] + exchange[whose])
    return rates


@compiled
def tried_rates(tables: LawTables, tasks: LawTasks, groups: Ints, routes: Routes) -> Floats:
    """Return the rates of all jobs at each of several places of the last one, (tries, jobs).

    Args:
        tables: of the cluster.
        tasks: of all jobs.
        groups: of the last job's tasks, (tries, its tasks).
        routes: of its pairs, try by try; none for those that share a node.
    """
    tries, own = groups.shape
    first, own_pairs = len(tasks.job) - own, (len(routes.start) - 1) // max(tries, 1)
    pairs, group, rates = tasks.pairs, tasks.group.copy(), np.zeros((tries, len(tasks.jobs)))
    others, before = tasks.job[:first], tables.node_of[group]
    stay = loads_of(others, group[:first], before[:first], tasks.use[:first], tables.cores, len(tables.qpi))
    slowed, load = np.zeros(len(group)), np.zeros(len(tables.capacity))
    slowed[:first] = slowdowns_of(stay, tables.coefficients)
    for link in tasks.routes.links:
        load[link] += 1.0
    gbps = np.full(len(pairs.worker), np.inf)
    for pair in range(len(gbps)):
        gbps[pair] = _inside(tables, group, pairs, pair)
    for row in range(tries):
        group[first:] = groups[row]
        which, slower = _slowed_around(tables, tasks, group, first)
        now, more = slowed.copy(), load.copy()
        now[which] = slower
        begin = row * own_pairs
        for link in routes.links[routes.start[begin] : routes.start[begin + own_pairs]]:
            more[link] += 1.0
        gbps[tasks.apart] = equal_share(tables.capacity, tasks.routes, more)
        for number in range(own_pairs):
            pair = len(gbps) - own_pairs + number
            gbps[pair] = _inside(tables, group, pairs, pair)
            for link in routes.links[routes.start[begin + number] : routes.start[begin + number + 1]]:
                gbps[pair] = min(gbps[pair], tables.capacity[link] / more[link])
        rates[row] = rates_of(tasks.jobs, tasks.job, pairs, gbps, now)
    return rates


@compiled
def _inside(tables: LawTables, group: Ints, pairs: Pairs, pair: int) -> float:
    """Return the Gb/s of a pair inside a node; infinity on one socket, and for a pair that the network joins."""
    one, other = group[pairs.worker[pair]], group[pairs.server[pair]]
    node = tables.node_of[one]
    return tables.qpi[node] if one != other and node == tables.node_of[other] else np.inf


@compiled
def _slowed_around(tables: LawTables, tasks: LawTasks, group: Ints, first: int) -> tuple[Ints, Floats]:
    """Return the tasks in nodes that hold one of the last job's, and their slowdowns.

    Args:
        tables: of the cluster.
        tasks: of all jobs.
        group: of each task now, (tasks,).
        first: task of the last job.
    """
    number, nodes = np.full(len(tables.qpi), -1), 0
    for task in range(first, len(group)):
        node = tables.node_of[group[task]]
        if number[node] < 0:
            number[node] = nodes
            nodes += 1
    where = number[tables.node_of[group]]
    which = np.flatnonzero(where >= 0)
    loads = loads_of(tasks.job[which], group[which], where[which], tasks.use[which], tables.cores, nodes)
    return which, slowdowns_of(loads, tables.coefficients)
