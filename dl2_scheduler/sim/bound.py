"""Mean completion times that no scheduler can beat: each job alone, and a linear program over all of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog

from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.configurations import Alone, Configurations, alone, configurations
from dl2_scheduler.sim.lanes import Counts, Floats

_INFEASIBLE = 2  # linprog's status
_TOLERANCE = 1e-7  # of a reduced cost


def hard_bound(jobs: Sequence[Job], nodes: Sequence[Node], speeds: Speeds, slot_seconds: float = 1200.0) -> float:
    """Return the slots that a job takes in the mean where each has the cluster to itself.

    Args:
        jobs: all that arrive.
        nodes: machines.
        speeds: of the models.
        slot_seconds: length of a slot.

    Raises:
        BadInput: a job runs in no configuration.
    """
    ways = [configurations(job, nodes, speeds, slot_seconds) for job in jobs]
    return float(alone(jobs, ways, slot_seconds).times.mean())


def lp_bound(
    jobs: Sequence[Job], nodes: Sequence[Node], speeds: Speeds, slot_seconds: float = 1200.0, prune: bool = True
) -> float:
    """Return the slots that a job takes in the mean at least, whatever the scheduler knows.

    The program chooses how much of each slot a job spends in each configuration; all nodes are one, and a job may be in
    several configurations at once. A job's completion time is at least its time in service, its time alone, and what
    follows from when its work is done on average: at its top speed at most, so half its shortest time in service before
    its end at least.

    Args:
        jobs: all that arrive.
        nodes: machines.
        speeds: of the models.
        slot_seconds: length of a slot.
        prune: leave out configurations that no solution needs; the bound stays the same.

    Raises:
        BadInput: a job runs in no configuration.
    """
    ways = [configurations(job, nodes, speeds, slot_seconds) for job in jobs]
    by_itself = alone(jobs, ways, slot_seconds)
    if prune:
        ways = _pruned(jobs, ways)
    busy = max(np.sum([(way.use / way.rate[:, None]).min(axis=0) for way in ways], axis=0))
    horizon = math.ceil((by_itself.arrival + by_itself.times).max() + busy / 2) + 1  # mostly enough
    while (bound := _Program(by_itself, ways, horizon).solve()) is None:
        horizon *= 2
    return bound


def _pruned(jobs: Sequence[Job], ways: Sequence[Configurations]) -> list[Configurations]:
    """Keep of each job the efficient configurations, which are the same for jobs that differ in their work alone."""
    kept: dict[tuple[Any, ...], list[int]] = {}
    result = []
    for job, way in zip(jobs, ways, strict=True):
        demands = [tuple(sorted(each.items())) for each in (job.worker, job.server)]
        kind = (job.model, *demands, job.max_workers, job.max_servers)
        if kind not in kept:
            kept[kind] = way.efficient()
        result.append(way.only(kept[kind]))
    return result


def _sums(weights: Floats, rows: Counts, count: int) -> sparse.csr_array:
    """Return the matrix whose row sums the variables that belong to it."""
    return sparse.csr_array((weights, (rows, np.arange(len(rows)))), shape=(count, len(rows)))


@dataclass(frozen=True)
class _Program:
    """It has all slots before `horizon`. A variable is the part of a slot that a job spends in a configuration."""

    alone: Alone
    ways: Sequence[Configurations]
    horizon: int

    def solve(self) -> float | None:
        """Return the bound, or None: jobs do not fit before the horizon, or later slots could improve it."""
        jobs = len(self.ways)
        job, slot, rate, use = self._variables()
        per_job_and_slot = np.unique(job * self.horizon + slot, return_inverse=True)[1]
        pairs = int(per_job_and_slot.max()) + 1
        limits = sparse.vstack(
            [
                *(_sums(part, slot, self.horizon) for part in use.T),
                _sums(np.ones(len(job)), per_job_and_slot, pairs),
                _sums(rate * (slot + 0.5), job, jobs),
                _sums(np.ones(len(job)), job, jobs),
            ]
        )
        capacity = limits.shape[0] - 2 * jobs
        times = sparse.vstack([sparse.csr_array((capacity, jobs)), -sparse.eye_array(jobs), -sparse.eye_array(jobs)])
        shortest = self.alone.shortest
        late = shortest / 2 - np.minimum(0.5, 1 / (8 * shortest))  # the end of a job's last slot may be idle
        least = np.concatenate([self.alone.times, np.zeros(len(job))])
        found = linprog(
            np.concatenate([np.full(jobs, 1 / jobs), np.zeros(len(job))]),
            A_ub=sparse.hstack([times, limits], format="csc"),
            b_ub=np.concatenate([np.ones(capacity), self.alone.arrival - late, -self.alone.wait]),
            A_eq=sparse.hstack([sparse.csr_array((jobs, jobs)), _sums(rate, job, jobs)], format="csc"),
            b_eq=np.ones(jobs),
            bounds=np.column_stack([least, np.full(len(least), np.inf)]),
            method="highs-ipm",
        )
        if found.status not in (0, _INFEASIBLE):
            raise RuntimeError(f"the linear program was not solved: {found.message}")
        return float(found.fun) if found.status == 0 and self._is_long_enough(found) else None

    def _variables(self) -> tuple[Counts, Counts, Floats, Floats]:
        """Return the job, slot, rate and use of each variable."""
        parts = []
        for number, way in enumerate(self.ways):
            slots = np.arange(math.ceil(self.alone.arrival[number]), self.horizon)
            size = len(way.rate)
            here = (np.full(len(slots) * size, number), np.repeat(slots, size))
            parts.append((*here, np.tile(way.rate, len(slots)), np.tile(way.use, (len(slots), 1))))
        job, slot, rate, use = (np.concatenate(part) for part in zip(*parts, strict=True))
        return job, slot, rate, use

    def _is_long_enough(self, found: OptimizeResult) -> bool:
        """Return whether the first slot beyond, where all is free, would improve nothing; then no later one would."""
        jobs = len(self.ways)
        late, service = -found.ineqlin.marginals[-2 * jobs : -jobs], -found.ineqlin.marginals[-jobs:]
        work = found.eqlin.marginals
        return all(
            (late[job] * way.rate * (self.horizon + 0.5) + service[job] - work[job] * way.rate).min() >= -_TOLERANCE
            for job, way in enumerate(self.ways)
        )
