"""This module asks one policy for the tasks of many clusters at once: what it reads, and what its choices do.

All clusters are at the next task that has a choice; see `policies.learnt.placer`, which does the same in one cluster.
"""

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.errors import Starved
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.learning.placement.compiled_speed import SpeedTables, speed_tables
from dl2_scheduler.learning.placement.lockstep.clusters import (
    RUNS,
    LockstepClusters,
    begin_interval,
    clusters_of,
    drop,
    fits,
    put,
    run_interval,
)
from dl2_scheduler.policies.learnt.placer import F32, group_width, job_width
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.simulator import MOST_SLOTS

Mask = NDArray[np.bool_]


@compiled
def next_role(workers: int, servers: int, asked: Ints) -> int:
    """Return the role of a job's next task, a worker and a server in turn; -1: it has all.

    Args:
        workers: that it has.
        servers: that it has.
        asked: how many of both it is to have, (2,).
    """
    if workers < asked[WORKER] and (workers <= servers or servers == asked[SERVER]):
        return WORKER
    return SERVER if servers < asked[SERVER] else -1


@compiled
def _advance(all_of: LockstepClusters, tables: SpeedTables, cluster: int, seconds: float) -> bool:
    """Go on to the next task that fits somewhere, and return whether there is one: else all jobs have ended.

    Args:
        all_of: changed.
        tables: of the model of speeds.
        cluster: in which.
        seconds: of an interval.
    """
    while True:
        if all_of.at[cluster] < all_of.waiting[cluster]:
            job = all_of.order[cluster, all_of.at[cluster]]
            own = all_of.own[cluster, job]
            role = next_role(own[:, WORKER].sum(), own[:, SERVER].sum(), all_of.asked[cluster, job])
            if role < 0:
                all_of.phase[cluster, job] = RUNS
                all_of.at[cluster] += 1
                continue
            for group in range(len(own)):
                if fits(all_of, cluster, job, role, group):
                    return True
            drop(all_of, cluster, job)
            all_of.at[cluster] += 1
            continue
        if all_of.interval[cluster] >= 0:
            run_interval(all_of, tables, cluster, seconds)
        if not begin_interval(all_of, cluster, True):
            return False


@compiled
def _choose(all_of: LockstepClusters, tables: SpeedTables, seconds: float, chosen: Ints, active: Mask) -> None:
    """Give the tasks at hand their places and go on to the next ones.

    Args:
        all_of: changed.
        tables: of the model of speeds.
        seconds: of an interval.
        chosen: group of each cluster's task; as many as there are groups: its job waits; -1: nothing, (clusters,).
        active: changed: whether each cluster still has a task, (clusters,).
    """
    for cluster in range(len(chosen)):
        if not active[cluster]:
            continue
        if chosen[cluster] >= 0:
            job = all_of.order[cluster, all_of.at[cluster]]
            own = all_of.own[cluster, job]
            if chosen[cluster] < len(own):
                role = next_role(own[:, WORKER].sum(), own[:, SERVER].sum(), all_of.asked[cluster, job])
                put(all_of, cluster, job, role, chosen[cluster])
            else:
                drop(all_of, cluster, job)
                all_of.at[cluster] += 1
        active[cluster] = _advance(all_of, tables, cluster, seconds)


@compiled
def _read(all_of: LockstepClusters, capacity: Floats, which: Ints, groups: F32, about: F32, allowed: Mask) -> None:
    """Write what the policy reads for the tasks at hand: see `TaskReader`.

    Args:
        all_of: as they are.
        capacity: of the groups, (groups, 2).
        which: clusters, all with a task at hand, (tasks,).
        groups: changed, (tasks, groups, group_width).
        about: changed, (tasks, job_width).
        allowed: changed, (tasks, groups + 1).
    """
    kinds = all_of.kinds.shape[2]
    models = kinds // 2
    for row, cluster in enumerate(which):
        job = all_of.order[cluster, all_of.at[cluster]]
        own, model, asked = all_of.own[cluster, job], all_of.model[cluster, job], all_of.asked[cluster, job]
        workers, servers = own[:, WORKER].sum(), own[:, SERVER].sum()
        role = next_role(workers, servers, asked)
        still = all_of.left[cluster, job] * all_of.computing[cluster, job]
        for group in range(len(own)):
            groups[row, group, :kinds] = all_of.kinds[cluster, group]
            groups[row, group, kinds : 2 * kinds] = all_of.lasting[cluster, group]
            for each in (WORKER, SERVER):
                groups[row, group, 2 * model + each] -= own[group, each]
                groups[row, group, kinds + 2 * model + each] -= own[group, each] * still
                groups[row, group, 2 * kinds + each] = own[group, each]
            for resource in range(2):
                room = all_of.free[cluster, group, resource] - all_of.demand[cluster, job, role, resource]
                groups[row, group, 2 * kinds + 2 + resource] = room / max(capacity[group, resource], 1.0)
            allowed[row, group] = fits(all_of, cluster, job, role, group)
        allowed[row, -1] = workers + servers == 0 and all_of.kinds[cluster].sum() > 0
        about[row] = 0.0
        about[row, model] = 1.0
        for place in range(all_of.at[cluster] + 1, all_of.waiting[cluster]):
            other = all_of.order[cluster, place]
            for each in (WORKER, SERVER):
                about[row, models + 2 * all_of.model[cluster, other] + each] += all_of.asked[cluster, other, each] / 3
        last = about[row, 3 * models :]
        last[0], last[1], last[2] = role, asked[WORKER] / 3, asked[SERVER] / 3
        last[3], last[4], last[5] = workers / 3, servers / 3, still
        last[6] = (all_of.waiting[cluster] - all_of.at[cluster] - 1) / 5
        for resource in range(2):
            last[7 + resource] = all_of.free[cluster, :, resource].sum() / max(capacity[:, resource].sum(), 1.0)


class Lockstep:
    """A `Lockstep` has many clusters at their next tasks.

    Args:
        scenario: of all of them, in the world of a fitted model of speeds.
        clusters: see `LockstepClusters`.

    Attributes:
        clusters: as given, changed by choices.
        active: whether each has a task at hand, (clusters,); else all its jobs have ended.
    """

    def __init__(self, scenario: Scenario, clusters: LockstepClusters):
        if not isinstance(scenario.world, PooledSpeed):
            raise TypeError("clusters in lockstep have the speeds of a fitted PooledSpeed")
        self.scenario, self.clusters = scenario, clusters
        self.active: Mask = np.ones(len(clusters.waiting), dtype=bool)
        self._tables = speed_tables(scenario.world)
        self._models = len(scenario.profiles)

    @classmethod
    def begun(cls, scenario: Scenario, sequences: Sequence[Sequence[Job]]) -> Self:
        """Return clusters at their first tasks; see `clusters_of`."""
        found = cls(scenario, clusters_of(scenario, sequences))
        found.choose(np.full(len(sequences), -1))
        return found

    def copies(self, which: Ints) -> "Lockstep":
        """Return copies of some clusters, which may be named more than once."""
        found = Lockstep(self.scenario, self.clusters.rows(which))
        found.active = self.active[which]
        return found

    def replace(self, which: Ints, others: "Lockstep") -> None:
        """Put others in the place of some clusters, in this order."""
        for own, other in zip(self.clusters, others.clusters, strict=True):
            own[which] = other
        self.active[which] = others.active

    def inputs(self, which: Ints) -> tuple[F32, F32, Mask]:
        """Return what the policy reads for the tasks of some clusters, see `PlacerInputs`; rows are tasks.

        Args:
            which: clusters with tasks at hand.
        """
        count = self.clusters.free.shape[1]
        groups = np.empty((len(which), count, group_width(self._models)), dtype=np.float32)
        about = np.empty((len(which), job_width(self._models)), dtype=np.float32)
        allowed = np.empty((len(which), count + 1), dtype=bool)
        _read(self.clusters, self.scenario.machines.capacity, which, groups, about, allowed)
        return groups, about, allowed

    def choose(self, chosen: Ints) -> None:
        """Give tasks their places and go on to the next ones.

        Args:
            chosen: group of each cluster's task; as many as there are groups: its job waits, (clusters,).
        """
        _choose(self.clusters, self._tables, self.scenario.workload.interval_seconds, chosen, self.active)

    def run(
        self, decide: Callable[[F32, F32, Mask, Ints], Ints], until: Callable[["Lockstep"], Mask] | None = None
    ) -> None:
        """Let a policy decide until all jobs have ended.

        Args:
            decide: returns the choices for tasks, given what it reads of them and their clusters.
            until: which clusters stop before, (clusters,); None: none.

        Raises:
            Starved: jobs are left after `MOST_SLOTS` intervals.
        """
        while True:
            if self.clusters.interval.max() >= MOST_SLOTS:
                raise Starved(f"jobs are left after {MOST_SLOTS} intervals: the policy starves them")
            goes_on = self.active if until is None else self.active & ~until(self)
            which = np.flatnonzero(goes_on)
            if not len(which):
                return
            chosen = np.full(len(self.active), -1)
            chosen[which] = decide(*self.inputs(which), which)
            stopped, self.active = self.active, goes_on.copy()
            self.choose(chosen)
            self.active |= stopped & ~goes_on

    def times(self) -> Floats:
        """Return the intervals from each job's arrival to its end, (clusters, jobs); NaN where it has not ended."""
        found: Floats = self.clusters.finish - self.clusters.arrival
        return found
