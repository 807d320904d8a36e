"""This module runs many clusters at once, compiled: jobs of fixed counts, placed at the beginnings of intervals.

It says the same as `sim.placed.cluster.PlacedCluster` with `FixedDemand` in the world of a fitted model of speeds, a
hundred times as fast: only jobs that share a group with what came or went are rated anew.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import SLACK, check_minimum_fits
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.view import RESOURCES
from dl2_scheduler.cluster.jobs import Job, Node, check_fits
from dl2_scheduler.learning.placement.compiled_speed import SpeedTables, rate_job
from dl2_scheduler.policies.learnt.placer import COMPUTING_UNIT
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.simulator import MOST_SLOTS

COMES, WAITS, RUNS, ENDED = 0, 1, 2, 3
"""Phases of a job."""
_DONE = 1e-12  # part of its work that a job may lack by rounding when it ends


class LockstepClusters(NamedTuple):
    """These `LockstepClusters` are many episodes at once; the first axis of all arrays is theirs.

    Attributes:
        model: of each job, (clusters, jobs).
        asked: its workers and servers, (clusters, jobs, 2).
        demand: what a task takes, by role and resource, (clusters, jobs, 2, 2).
        arrival: interval in which it comes, (clusters, jobs).
        work: samples that it takes, (clusters, jobs).
        computing: what a sample takes one worker, over its workers, in `COMPUTING_UNIT`s, (clusters, jobs).
        left: samples that it still takes, (clusters, jobs).
        rate: samples a second, (clusters, jobs).
        finish: when it ended, in intervals, (clusters, jobs); NaN: it has not.
        phase: see COMES, (clusters, jobs).
        own: its tasks in each group by role, (clusters, jobs, groups, 2).
        first: group of its first server; -1: it has none, (clusters, jobs).
        kinds: tasks in each group by kind, `2 * model + role`, (clusters, groups, kinds).
        lasting: what these tasks' jobs still compute, in `COMPUTING_UNIT`s, summed up, (clusters, groups, kinds).
        free: what groups have left, (clusters, groups, 2).
        changed: whether tasks came or went in a group since jobs were rated, (clusters, groups).
        order: the jobs that wait for a place in this interval, in the order in which they get one, (clusters, jobs).
        waiting: how many these are, (clusters,).
        at: which of them is being placed, (clusters,).
        interval: that it is, (clusters,).
    """

    model: Ints
    asked: Ints
    demand: Floats
    arrival: Ints
    work: Floats
    computing: Floats
    left: Floats
    rate: Floats
    finish: Floats
    phase: Ints
    own: Ints
    first: Ints
    kinds: Ints
    lasting: Floats
    free: Floats
    changed: NDArray[np.bool_]
    order: Ints
    waiting: Ints
    at: Ints
    interval: Ints

    def rows(self, which: Ints) -> "LockstepClusters":
        """Return copies of some clusters, which may be named more than once."""
        return LockstepClusters(**{name: array[which] for name, array in self._asdict().items()})


def clusters_of(scenario: Scenario, sequences: Sequence[Sequence[Job]]) -> LockstepClusters:
    """Return clusters in which nothing has happened yet.

    Args:
        scenario: of all of them; the workload does not matter.
        sequences: the jobs that come in each, by arrival, as many in each.

    Raises:
        BadInput: a job does not fit, even if nothing else is there; the text says which, and what it asks for.
    """
    names, length = sorted(scenario.profiles), scenario.workload.interval_seconds
    shape = len(sequences), len(sequences[0])
    groups, kinds = len(scenario.machines.sockets), 2 * len(names)
    every = [job for jobs in sequences for job in jobs]
    _check_fit(every, scenario.machines.capacity)
    speed = {name: each.alone_s / each.batch / COMPUTING_UNIT for name, each in scenario.profiles.items()}

    def of_jobs(values: list[float]) -> Floats:
        return np.array(values, dtype=float).reshape(*shape, *np.shape(values)[1:])

    work = of_jobs([job.epochs * job.samples_per_epoch for job in every])
    demand = np.array([[[each.get(name, 0.0) for name in RESOURCES] for each in (j.worker, j.server)] for j in every])
    zeros = np.zeros(shape)
    return LockstepClusters(
        model=of_jobs([names.index(job.model) for job in every]).astype(np.int64),
        asked=np.array([(job.max_workers, job.max_servers) for job in every]).reshape(*shape, 2),
        demand=demand.reshape(*shape, 2, 2).astype(float),
        arrival=np.round(of_jobs([job.arrival for job in every]) / length).astype(np.int64),
        work=work,
        computing=of_jobs([speed[job.model] / max(1, job.max_workers) for job in every]),
        left=work.copy(),
        rate=zeros.copy(),
        finish=np.full(shape, np.nan),
        phase=np.full(shape, COMES),
        own=np.zeros((*shape, groups, 2), dtype=np.int64),
        first=np.full(shape, -1),
        kinds=np.zeros((shape[0], groups, kinds), dtype=np.int64),
        lasting=np.zeros((shape[0], groups, kinds)),
        free=np.tile(scenario.machines.capacity, (shape[0], 1, 1)),
        changed=np.zeros((shape[0], groups), dtype=bool),
        order=np.zeros(shape, dtype=np.int64),
        waiting=np.zeros(shape[0], dtype=np.int64),
        at=np.zeros(shape[0], dtype=np.int64),
        interval=np.full(shape[0], -1),
    )


def spent(clusters: LockstepClusters, begin: Ints, intervals: int) -> Floats:
    """Return the time that jobs spend in the system in each interval, in intervals, (clusters, intervals).

    Over all intervals it sums up to the sum of the completion times.

    Args:
        clusters: that have run at least so far.
        begin: first interval of each, (clusters,).
        intervals: how many.
    """
    end = np.where(np.isnan(clusters.finish), np.inf, clusters.finish)
    edge = begin[:, None, None] + np.arange(intervals)[None, :, None]
    clipped = np.clip(end[:, None], edge, edge + 1) - np.clip(clusters.arrival[:, None], edge, edge + 1)
    found: Floats = np.maximum(clipped, 0.0).sum(axis=2)
    return found


def _check_fit(jobs: Sequence[Job], capacity: Floats) -> None:
    """Refuse a job that finds no places for all its tasks in empty groups. Raises BadInput.

    Args:
        jobs: of any models.
        capacity: of the groups, (groups, 2).
    """
    nodes = [
        Node(f"group-{number}", dict(zip(RESOURCES, row.tolist(), strict=True))) for number, row in enumerate(capacity)
    ]
    kinds = {(job.max_workers, job.max_servers, *job.worker.items(), *job.server.items()): job for job in jobs}
    for job in kinds.values():
        whole = replace(job, min_workers=job.max_workers, min_servers=job.max_servers)
        try:
            check_fits(whole, nodes)
            check_minimum_fits(whole, nodes)
        except BadInput as error:
            asked = (
                f"{job.max_workers} workers of {dict(job.worker)} and {job.max_servers} servers of {dict(job.server)}"
            )
            raise BadInput(f"job {job.id}, {job.model}, asks for {asked}: {error}") from error


@compiled
def put(all_of: LockstepClusters, cluster: int, job: int, role: int, group: int) -> None:
    """Give a task its place.

    Args:
        all_of: changed.
        cluster: in which.
        job: of the task.
        role: of the task.
        group: where it goes.
    """
    kind = 2 * all_of.model[cluster, job] + role
    all_of.free[cluster, group] -= all_of.demand[cluster, job, role]
    all_of.kinds[cluster, group, kind] += 1
    all_of.lasting[cluster, group, kind] += all_of.left[cluster, job] * all_of.computing[cluster, job]
    all_of.own[cluster, job, group, role] += 1
    all_of.changed[cluster, group] = True
    if role == SERVER and all_of.first[cluster, job] < 0:
        all_of.first[cluster, job] = group


@compiled
def drop(all_of: LockstepClusters, cluster: int, job: int) -> None:
    """Take a job's tasks away.

    Args:
        all_of: changed.
        cluster: in which.
        job: whose tasks.
    """
    for group in range(all_of.own.shape[2]):
        for role in (WORKER, SERVER):
            count = all_of.own[cluster, job, group, role]
            if count:
                kind = 2 * all_of.model[cluster, job] + role
                all_of.free[cluster, group] += count * all_of.demand[cluster, job, role]
                all_of.kinds[cluster, group, kind] -= count
                still = all_of.left[cluster, job] * all_of.computing[cluster, job]
                all_of.lasting[cluster, group, kind] -= count * still
                all_of.own[cluster, job, group, role] = 0
                all_of.changed[cluster, group] = True
    all_of.first[cluster, job] = -1


@compiled
def fits(all_of: LockstepClusters, cluster: int, job: int, role: int, group: int) -> bool:
    """Return whether a task fits a group.

    Args:
        all_of: as they are.
        cluster: in which.
        job: of the task.
        role: of the task.
        group: where it would go.
    """
    for resource in range(all_of.free.shape[2]):
        if all_of.free[cluster, group, resource] < all_of.demand[cluster, job, role, resource] - SLACK:
            return False
    return True


@compiled
def _rate(all_of: LockstepClusters, tables: SpeedTables, cluster: int) -> None:
    """Rate the jobs anew that have tasks where some came or went."""
    changed = all_of.changed[cluster]
    for job in range(all_of.model.shape[1]):
        if all_of.phase[cluster, job] != RUNS:
            continue
        own = all_of.own[cluster, job]
        for group in range(len(changed)):
            if changed[group] and own[group, WORKER] + own[group, SERVER] > 0:
                all_of.rate[cluster, job] = rate_job(
                    tables, all_of.kinds[cluster], own, all_of.model[cluster, job], all_of.first[cluster, job]
                )
                break
    changed[:] = False


@compiled
def run_interval(all_of: LockstepClusters, tables: SpeedTables, cluster: int, seconds: float) -> None:
    """Let an interval pass: jobs end when they end, and the others' speeds change then.

    Args:
        all_of: changed.
        tables: of the model of speeds.
        cluster: in which.
        seconds: of an interval.
    """
    left, rate, phase = all_of.left[cluster], all_of.rate[cluster], all_of.phase[cluster]
    now, end = 0.0, seconds
    _rate(all_of, tables, cluster)
    while now < end:
        to = end
        for job in range(len(left)):
            if phase[job] == RUNS:
                to = min(to, now + left[job] / rate[job])
        for job in range(len(left)):
            if phase[job] != RUNS:
                continue
            done = rate[job] * (to - now)
            if now + left[job] / rate[job] <= to or left[job] - done <= _DONE * all_of.work[cluster, job]:
                all_of.finish[cluster, job] = all_of.interval[cluster] + to / seconds
                drop(all_of, cluster, job)
                left[job], phase[job] = 0.0, ENDED
            else:
                left[job] -= done
        now = to
        _rate(all_of, tables, cluster)


@compiled
def begin_interval(all_of: LockstepClusters, cluster: int, shortest: bool) -> bool:
    """Begin the next interval, and return whether there are jobs left; False at the last of `MOST_SLOTS` too.

    Args:
        all_of: changed.
        cluster: in which.
        shortest: who takes least time is placed first; else who came first.
    """
    all_of.interval[cluster] += 1
    all_of.lasting[cluster] = 0.0
    over, count = True, 0
    still = np.zeros(all_of.model.shape[1])
    for job in range(len(still)):
        still[job] = all_of.left[cluster, job] * all_of.computing[cluster, job]
        phase = all_of.phase[cluster, job]
        over &= phase == ENDED
        if phase == COMES and all_of.arrival[cluster, job] <= all_of.interval[cluster]:
            all_of.phase[cluster, job] = phase = WAITS
        if phase == RUNS:
            for group in range(all_of.own.shape[2]):
                for role in (WORKER, SERVER):
                    kind = 2 * all_of.model[cluster, job] + role
                    all_of.lasting[cluster, group, kind] += all_of.own[cluster, job, group, role] * still[job]
        if phase == WAITS:
            where = count
            while shortest and where > 0 and still[all_of.order[cluster, where - 1]] > still[job]:
                all_of.order[cluster, where] = all_of.order[cluster, where - 1]
                where -= 1
            all_of.order[cluster, where] = job
            count += 1
    all_of.waiting[cluster], all_of.at[cluster] = count, 0
    return not over and all_of.interval[cluster] < MOST_SLOTS
