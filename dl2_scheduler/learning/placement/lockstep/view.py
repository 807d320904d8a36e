"""This module turns what a placement policy sees into a cluster in lockstep, from which others can be rolled out."""

import numpy as np

from dl2_scheduler.cluster.hardware.placements import SERVER
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.learning.placement.lockstep.clusters import ENDED, RUNS, WAITS, LockstepClusters
from dl2_scheduler.policies.learnt.placer import COMPUTING_UNIT
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, remaining_work, waiting


def cluster_of(view: PlacementView, order: JobOrder) -> LockstepClusters:
    """Return a view as a single cluster in lockstep, in interval 0, before the first task gets its place.

    Args:
        view: of models that are all known.
        order: in which jobs get their places.
    """
    jobs, groups, placed = len(view.jobs), len(view.free), view.placed
    own = np.zeros((jobs, groups, 2), dtype=np.int64)
    np.add.at(own, (placed.job, placed.group, placed.role), 1)
    first = np.full(jobs, -1)
    for job, role, group in zip(placed.job[::-1], placed.role[::-1], placed.group[::-1], strict=True):
        first[job] = group if role == SERVER else first[job]
    still = np.array([remaining_work(view, job) / COMPUTING_UNIT for job in range(jobs)])
    kind = 2 * placed.model[placed.job] + placed.role
    kinds = np.zeros((groups, 2 * len(view.models)), dtype=np.int64)
    np.add.at(kinds, (placed.group, kind), 1)
    lasting = np.zeros(kinds.shape)
    np.add.at(lasting, (placed.group, kind), still[placed.job])
    wait = waiting(view, order)
    phase = np.where(own.any(axis=(1, 2)), RUNS, ENDED)
    phase[wait] = WAITS
    zeros, count = np.zeros(jobs), np.zeros(1, dtype=np.int64)
    one = {
        "model": placed.model,
        "asked": own.sum(axis=1) + view.missing,
        "demand": view.demand,
        "arrival": zeros.astype(np.int64),
        "work": view.whole_work,
        "computing": still / view.work_left,
        "left": view.work_left,
        "rate": zeros,
        "finish": np.full(jobs, np.nan),
        "phase": phase,
        "own": own,
        "first": first,
        "kinds": kinds,
        "lasting": lasting,
        "free": view.free,
        "changed": np.ones(groups, dtype=bool),
        "order": np.array(wait + [0] * (jobs - len(wait)), dtype=np.int64),
    }
    rows = {name: array[None].copy() for name, array in one.items()}
    return LockstepClusters(**rows, waiting=count + len(wait), at=count.copy(), interval=count.copy())
