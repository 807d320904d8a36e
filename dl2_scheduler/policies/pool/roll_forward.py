"""Compiled parts of the roll-out planner say what becomes of jobs that share units, decided greedily at each end.

A unit is a worker with the servers that suit it, so that a job's speed is a curve over its units.
"""

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEVER = 1e18
"""Cost where jobs are left that never end."""


@compiled
def fill_greedily(left: Floats, curves: Floats, units: int, counts: Ints) -> None:
    """Give units to jobs, each time where a unit shortens the time that a job still needs most.

    Args:
        left: samples that each job needs still, (jobs,); 0: it takes part no more.
        curves: samples a second of each job by its units, (jobs, units + 1).
        units: that there are.
        counts: of each job, (jobs,); overwritten.
    """
    free, most = units, curves.shape[1] - 1
    counts[:] = 0
    while free > 0:
        best, best_gain, best_more = -1, 0.0, 0
        for job in range(len(left)):
            if left[job] <= 0:
                continue
            have = counts[job]
            now = curves[job, have]
            for more in range(1, min(free, most - have) + 1):
                then = curves[job, have + more]
                if then <= now:
                    continue
                gain = NEVER / more if now <= 0 else (left[job] / now - left[job] / then) / more
                if gain > best_gain:
                    best, best_gain, best_more = job, gain, more
        if best < 0:
            return
        counts[best] += best_more
        free -= best_more


@compiled
def cost_of(left: Floats, curves: Floats, units: int, counts: Ints) -> float:
    """Return the sum of the seconds until each job ends, where no other arrives.

    Args:
        left: samples that each job needs still, (jobs,).
        curves: samples a second of each job by its units, (jobs, units + 1).
        units: that there are.
        counts: what jobs have until the first one ends; then `fill_greedily` decides.
    """
    rest, now = left.copy(), counts.copy()
    jobs, total = 0, 0.0
    for job in range(len(rest)):
        jobs += rest[job] > 0
    while jobs:
        soonest = NEVER
        for job in range(len(rest)):
            if rest[job] > 0 and curves[job, now[job]] > 0:
                soonest = min(soonest, rest[job] / curves[job, now[job]])
        total += soonest * jobs
        if soonest >= NEVER:
            return total
        for job in range(len(rest)):
            if rest[job] > 0:
                gone = curves[job, now[job]] * soonest
                rest[job] -= gone
                if rest[job] <= 1e-9 * left[job]:
                    rest[job] = 0.0
                    jobs -= 1
        fill_greedily(rest, curves, units, now)
    return total


@compiled
def climb(left: Floats, curves: Floats, units: int, counts: Ints) -> float:
    """Move single units between jobs, or leave them idle, while the cost falls; return the cost.

    Args:
        left: see `cost_of`.
        curves: see `cost_of`.
        units: see `cost_of`.
        counts: where it begins; changed.
    """
    jobs, most = len(left), curves.shape[1] - 1
    cost = cost_of(left, curves, units, counts)
    while True:
        best, giver, taker = cost * (1 - 1e-9), -1, -1
        idle = units - counts.sum()
        for source in range(jobs + 1):  # the last is the idle ones
            if (idle if source == jobs else counts[source]) == 0:
                continue
            for target in range(jobs + 1):
                if target == source or (target < jobs and counts[target] == most):
                    continue
                _move(counts, source, target, 1)
                found = cost_of(left, curves, units, counts)
                _move(counts, source, target, -1)
                if found < best:
                    best, giver, taker = found, source, target
        if giver < 0:
            return cost
        _move(counts, giver, taker, 1)
        cost = best


@compiled
def _move(counts: Ints, source: int, target: int, number: int) -> None:
    if source < len(counts):
        counts[source] -= number
    if target < len(counts):
        counts[target] += number


@compiled
def planned(left: Floats, curves: Floats, units: int) -> Ints:
    """Return the counts of the least cost that a climb finds from the greedy ones, and from some jobs alone.

    Args:
        left: see `cost_of`; all above 0.
        curves: see `cost_of`.
        units: see `cost_of`.
    """
    jobs = len(left)
    alone = np.empty(jobs)
    for job in range(jobs):
        top = curves[job].max()
        alone[job] = left[job] / top if top > 0 else NEVER
    order = np.argsort(alone)
    best, least = np.zeros(jobs, dtype=np.int64), NEVER * (jobs + 1)
    counts = np.zeros(jobs, dtype=np.int64)
    for shortest in range(jobs, 0, -1):
        some = np.zeros(jobs)
        for place in range(shortest):
            some[order[place]] = left[order[place]]
        fill_greedily(some, curves, units, counts)
        cost = climb(left, curves, units, counts)
        if cost < least:
            best, least = counts.copy(), cost
    return best
