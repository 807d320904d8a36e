"""This module finds the jobs that feel a change: tasks come, go or move, and most of a large cluster never notices.

Where links are max-min fair and most of them are wanted by more than they have, all jobs hang together, and may feel
it: then nothing is won.
"""

from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.compiled import compiled, inlined
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.topology import Routes
from dl2_scheduler.sim.placed.network import Flags

_NEARLY = 1.0 - 1e-9
"""A link that is wanted by so much of itself counts as tight: sums are rounded."""


class LinkUse(NamedTuple):
    """`LinkUse` says which links jobs take.

    Attributes:
        routes: the links of each job's flows: job by job, flow by flow.
        load: of each link, what the flows want of it together, (links,).
    """

    routes: Routes
    load: Floats


@compiled
def link_use(job: Ints, routes: Routes, wanted: Floats, links: int) -> LinkUse:
    """Return what links jobs take.

    Args:
        job: whose each flow is, (flows,).
        routes: of the flows.
        wanted: what each of a job's flows wants of its links, (jobs,).
        links: how many the network has.
    """
    start = np.zeros(len(wanted) + 1, dtype=np.int64)
    for flow in range(len(job)):
        start[job[flow] + 1] += routes.start[flow + 1] - routes.start[flow]
    start = np.cumsum(start)
    rows, filled = np.empty(start[-1], dtype=np.int64), start[:-1].copy()
    for flow in range(len(job)):
        for link in routes.links[routes.start[flow] : routes.start[flow + 1]]:
            rows[filled[job[flow]]] = link
            filled[job[flow]] += 1
    return LinkUse(Routes(start, rows), _load(start, rows, wanted, links))


@compiled
def _load(start: Ints, rows: Ints, wanted: Floats, links: int) -> Floats:
    load = np.zeros(links)
    for job in range(len(wanted)):
        for link in rows[start[job] : start[job + 1]]:
            load[link] += wanted[job]
    return load


@compiled
def renewed(before: LinkUse, changed: Flags, new: LinkUse, wanted: Floats) -> LinkUse:
    """Return the links that jobs take after a change.

    Args:
        before: by all jobs, as it was.
        changed: which jobs take others, (jobs,).
        new: by those alone.
        wanted: see `link_use`.
    """
    start = np.zeros(len(changed) + 1, dtype=np.int64)
    for job in range(len(changed)):
        routes = new.routes if changed[job] else before.routes
        start[job + 1] = start[job] + routes.start[job + 1] - routes.start[job]
    rows = np.empty(start[-1], dtype=np.int64)
    for job in range(len(changed)):
        routes = new.routes if changed[job] else before.routes
        rows[start[job] : start[job + 1]] = routes.links[routes.start[job] : routes.start[job + 1]]
    return LinkUse(Routes(start, rows), _load(start, rows, wanted, len(before.load)))


@compiled
def reached(before: LinkUse, after: LinkUse, new: LinkUse, capacity: Floats, felt: Flags) -> Flags:
    """Return the jobs whose flows hang together with those of others over tight links, these among them, (jobs,).

    A link with room for what all its flows want passes nothing on (`network.touched`).

    Args:
        before: by all jobs, before the change.
        after: by all jobs, after it.
        new: by the changed ones alone, after it.
        capacity: of each link, (links,).
        felt: the jobs to begin with, the changed ones among them, (jobs,).
    """
    tight = before.load + new.load > _NEARLY * capacity
    found, seen = felt.copy(), np.zeros(len(capacity), dtype=np.bool_)
    waiting, count = np.empty(len(capacity), dtype=np.int64), 0
    for job in np.flatnonzero(felt):
        count = _notice(before.routes, job, tight, seen, waiting, count)
        count = _notice(after.routes, job, tight, seen, waiting, count)
    if count == 0:
        return found
    start, jobs = _takers(after.routes, tight)
    while count > 0:
        count -= 1
        link = waiting[count]
        for job in jobs[start[link] : start[link + 1]]:
            if not found[job]:
                found[job] = True
                count = _notice(after.routes, job, tight, seen, waiting, count)
    return found


@inlined
def _notice(routes: Routes, job: int, tight: Flags, seen: Flags, waiting: Ints, count: int) -> int:
    """Put a job's tight links that nobody has seen yet among those that wait, and return how many these are then."""
    for link in routes.links[routes.start[job] : routes.start[job + 1]]:
        if tight[link] and not seen[link]:
            seen[link] = True
            waiting[count] = link
            count += 1
    return count


@compiled
def _takers(routes: Routes, tight: Flags) -> tuple[Ints, Ints]:
    """Return who takes each tight link: those of link l are `jobs[start[l] : start[l + 1]]`, some of them twice."""
    start = np.zeros(len(tight) + 1, dtype=np.int64)
    for link in routes.links:
        start[link + 1] += tight[link]
    start = np.cumsum(start)
    jobs, filled = np.empty(start[-1], dtype=np.int64), start[:-1].copy()
    for job in range(len(routes.start) - 1):
        for link in routes.links[routes.start[job] : routes.start[job + 1]]:
            if tight[link]:
                jobs[filled[link]] = job
                filled[link] += 1
    return start, jobs


@compiled
def users(routes: Routes, hit: Flags) -> Flags:
    """Return which jobs take one of some links, (jobs,).

    Args:
        routes: see `LinkUse`.
        hit: which links, (links,).
    """
    found = np.zeros(len(routes.start) - 1, dtype=np.bool_)
    for job in range(len(found)):
        for link in routes.links[routes.start[job] : routes.start[job + 1]]:
            if hit[link]:
                found[job] = True
                break
    return found


def beside(before: PlacementArrays, after: PlacementArrays, changed: Flags, place: Ints) -> Flags:
    """Return the jobs with a task where a changed one had or has one, (jobs,); these are among them.

    Args:
        before: where all tasks lay.
        after: where they lie, of the same jobs.
        changed: which jobs' tasks lie elsewhere, (jobs,).
        place: of each group: tasks whose groups have the same one lie beside each other, (groups,).
    """
    return _beside(before.job, place[before.group], after.job, place[after.group], changed, int(place.max()) + 1)


@compiled
def _beside(was: Ints, at: Ints, job: Ints, place: Ints, changed: Flags, places: int) -> Flags:
    hit, found = np.zeros(places, dtype=np.bool_), changed.copy()
    for task in range(len(was)):
        if changed[was[task]]:
            hit[at[task]] = True
    for task in range(len(job)):
        if changed[job[task]]:
            hit[place[task]] = True
    for task in range(len(job)):
        if hit[place[task]]:
            found[job[task]] = True
    return found


@compiled
def near(job: Ints, place: Ints, felt: Flags, places: int) -> tuple[Ints, int]:
    """Return the tasks of some jobs, behind them the others that lie beside these, and how many the former are.

    Args:
        job: of each task, (tasks,).
        place: of each task, (tasks,).
        felt: which jobs, (jobs,).
        places: how many there are.
    """
    hit = np.zeros(places, dtype=np.bool_)
    found, count = np.empty(len(job), dtype=np.int64), 0
    for task in range(len(job)):
        if felt[job[task]]:
            hit[place[task]] = True
            found[count] = task
            count += 1
    own = count
    for task in range(len(job)):
        if hit[place[task]] and not felt[job[task]]:
            found[count] = task
            count += 1
    return found[:count], own
