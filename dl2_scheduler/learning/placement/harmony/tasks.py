"""This module is Harmony's own decision (INFOCOM 2019, section IV) in many clusters at once: its state, its actions.

A choice names one of the new jobs, one of its roles and a server, until all is placed or nothing fits. The paper leaves
out how many jobs its state holds; here these are 16, new ones first, of which 8 may be placed in an interval, all by
arrival. What would leave a job half placed is no action: some order of first fit has to complete all jobs that have
tasks already. Nobody may wait.
"""

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.learning.placement.compiled_speed import SpeedTables
from dl2_scheduler.learning.placement.lockstep.clusters import RUNS, LockstepClusters, begin_interval, put, run_interval
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep, Mask, next_role
from dl2_scheduler.policies.learnt.placer import F32
from dl2_scheduler.sim.placed.scenario import Scenario

SEEN, PLACED = 16, 8
"""Jobs of a state, N, and those of them that may be placed, N'."""
_MOST = 3.0
"""Tasks of a role that an owner asks for at most: what counts are in parts of."""


def job_row(models: int) -> int:
    """Return how many numbers describe a job: its model, what it asks for and takes, and what has a place."""
    return models + 8


def group_row() -> int:
    """Return how many numbers describe a server: what is free, and where the jobs' tasks lie."""
    return 2 + 2 * SEEN


@compiled
def _completes(all_of: LockstepClusters, cluster: int, free: Floats, own: Ints) -> bool:
    """Return whether first fit, job by job, can give the new jobs that have tasks all that they miss.

    Args:
        all_of: as they are.
        cluster: in which.
        free: changed: what groups have left, (groups, 2).
        own: workers and servers of each new job, (PLACED, 2).
    """
    for row in range(min(PLACED, all_of.waiting[cluster])):
        job = all_of.order[cluster, row]
        workers, servers = own[row, WORKER], own[row, SERVER]
        if workers + servers == 0:
            continue
        while True:
            role = next_role(workers, servers, all_of.asked[cluster, job])
            if role < 0:
                break
            found = False
            for group in range(len(free)):
                if (free[group] >= all_of.demand[cluster, job, role] - 1e-9).all():
                    free[group] -= all_of.demand[cluster, job, role]
                    found = True
                    break
            if not found:
                return False
            if role == WORKER:
                workers += 1
            else:
                servers += 1
    return True


@compiled
def allow(all_of: LockstepClusters, cluster: int, allowed: Mask) -> bool:
    """Write which actions a cluster has, and return whether there is one.

    Args:
        all_of: as they are.
        cluster: which.
        allowed: changed, (PLACED * 2 * groups,).
    """
    groups = all_of.free.shape[1]
    allowed[:] = False
    own = np.zeros((PLACED, 2), dtype=np.int64)
    count = min(PLACED, all_of.waiting[cluster])
    for row in range(count):
        for role in (WORKER, SERVER):
            own[row, role] = all_of.own[cluster, all_of.order[cluster, row], :, role].sum()
    for row in range(count):
        job = all_of.order[cluster, row]
        for role in (WORKER, SERVER):
            if own[row, role] == all_of.asked[cluster, job, role]:
                continue
            demand = all_of.demand[cluster, job, role]
            own[row, role] += 1
            for group in range(groups):
                if (all_of.free[cluster, group] >= demand - 1e-9).all():
                    free = all_of.free[cluster].copy()
                    free[group] -= demand
                    allowed[(row * 2 + role) * groups + group] = _completes(all_of, cluster, free, own)
            own[row, role] -= 1
    return bool(allowed.any())


@compiled
def _go_on(
    all_of: LockstepClusters, tables: SpeedTables, seconds: float, chosen: Ints, allowed: Mask, active: Mask
) -> None:
    """Place the tasks that were chosen and go on to the next choice.

    Args:
        all_of: changed.
        tables: of the model of speeds.
        seconds: of an interval.
        chosen: action of each cluster; -1: none, (clusters,).
        allowed: changed: actions of each, (clusters, PLACED * 2 * groups).
        active: changed: whether each has one, (clusters,).
    """
    groups = all_of.free.shape[1]
    for cluster in range(len(chosen)):
        if not active[cluster]:
            continue
        if chosen[cluster] >= 0:
            row, rest = divmod(chosen[cluster], 2 * groups)
            put(all_of, cluster, all_of.order[cluster, row], rest // groups, rest % groups)
        while not (all_of.interval[cluster] >= 0 and allow(all_of, cluster, allowed[cluster])):
            if all_of.interval[cluster] >= 0:
                for row in range(min(PLACED, all_of.waiting[cluster])):
                    job = all_of.order[cluster, row]
                    if all_of.own[cluster, job].sum() > 0:
                        all_of.phase[cluster, job] = RUNS
                run_interval(all_of, tables, cluster, seconds)
            if not begin_interval(all_of, cluster, False):
                active[cluster] = False
                break


@compiled
def look(all_of: LockstepClusters, capacity: Floats, which: Ints, jobs: F32, servers: F32) -> None:
    """Write the states of clusters.

    Args:
        all_of: as they are.
        capacity: of the groups, (groups, 2).
        which: clusters, (rows,).
        jobs: changed, (rows, SEEN, job_row).
        servers: changed, (rows, groups, group_row).
    """
    jobs[:] = 0.0
    servers[:] = 0.0
    most = np.array([capacity[:, 0].max(), max(capacity[:, 1].max(), 1.0)])
    models = jobs.shape[2] - 8
    for row, cluster in enumerate(which):
        seen = np.full(SEEN, -1)
        new = min(PLACED, all_of.waiting[cluster])
        seen[:new] = all_of.order[cluster, :new]
        place = new
        for job in range(all_of.model.shape[1]):
            if all_of.phase[cluster, job] == RUNS and place < SEEN:
                seen[place] = job
                place += 1
        for place in range(SEEN):
            job = seen[place]
            if job < 0:
                continue
            about = jobs[row, place]
            about[all_of.model[cluster, job]] = 1.0
            for role in (WORKER, SERVER):
                about[models + 3 * role] = all_of.asked[cluster, job, role] / _MOST
                about[models + 3 * role + 1 : models + 3 * role + 3] = all_of.demand[cluster, job, role] / most
                about[models + 6 + role] = all_of.own[cluster, job, :, role].sum() / _MOST
                servers[row, :, 2 + 2 * place + role] = all_of.own[cluster, job, :, role] / _MOST
        for resource in range(2):
            servers[row, :, resource] = all_of.free[cluster, :, resource] / most[resource]


class HarmonyLockstep(Lockstep):
    """See `Lockstep`; each choice is one of Harmony's actions: `(new job * 2 + role) * groups + group`.

    Args:
        scenario: of all of them.
        clusters: see `LockstepClusters`.

    Attributes:
        allowed: whether each action can be chosen, (clusters, PLACED * 2 * groups).
    """

    def __init__(self, scenario: Scenario, clusters: LockstepClusters):
        super().__init__(scenario, clusters)
        self.allowed: Mask = np.zeros((len(clusters.waiting), PLACED * 2 * clusters.free.shape[1]), dtype=bool)

    def inputs(self, which: Ints) -> tuple[F32, F32, Mask]:
        """Return the states of some clusters and their actions; rows are clusters.

        Args:
            which: clusters with an action.
        """
        groups = self.clusters.free.shape[1]
        jobs = np.empty((len(which), SEEN, job_row(len(self.scenario.profiles))), dtype=np.float32)
        servers = np.empty((len(which), groups, group_row()), dtype=np.float32)
        look(self.clusters, self.scenario.machines.capacity, which, jobs, servers)
        return jobs, servers, self.allowed[which]

    def choose(self, chosen: Ints) -> None:
        """See `Lockstep.choose`."""
        seconds = self.scenario.workload.interval_seconds
        _go_on(self.clusters, self._tables, seconds, chosen, self.allowed, self.active)

    def replace(self, which: Ints, others: Lockstep) -> None:
        """See `Lockstep.replace`."""
        super().replace(which, others)
        if isinstance(others, HarmonyLockstep):
            self.allowed[which] = others.allowed

    def progress(self) -> Floats:
        """Return the parts of their training that jobs have done, (clusters,): Harmony's reward, summed up.

        Over an episode it becomes the number of jobs, whatever the policy does.
        """
        found: Floats = (1 - self.clusters.left / self.clusters.work).sum(axis=1)
        return found
