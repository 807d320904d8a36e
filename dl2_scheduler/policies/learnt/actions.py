"""The actions of a learnt policy: what an inference may grant to which job, and what a grant changes.

An action gives one job a worker, a server, or one of both; or it stops the filling of the slot. Its number is the
job's index * 3 + WORKER, SERVER or BOTH. A job without servers has its first grant, whose action is BOTH as every
job's, and workers: other actions are masked by its maximum of 0 servers. All of this runs within compiled loops.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import inlined
from dl2_scheduler.cluster.free_resources import Amounts

Ints = NDArray[np.int64]

WORKER, SERVER, BOTH = 0, 1, 2
ACTIONS = 3
STOP = -1
NOTHING = -2  # there is room for nothing
NEVER = np.iinfo(np.int64).max


class Tasks(NamedTuple):
    """These `Tasks` are what the jobs of a slot may get.

    Attributes:
        demands: of each kind of task, (kinds, resources).
        kind: of each job's worker, server, and both together, (jobs, 3).
        least: workers and servers that each job runs with, (jobs, 2): its first grant, as one action.
        most: that it can use, (jobs, 2); of a job without servers 0 servers.
        runs: whether a job had tasks in the slot before.
    """

    demands: Amounts
    kind: Ints
    least: Ints
    most: Ints
    runs: NDArray[np.bool_]


@inlined
def grant(counts: Ints, least: Ints, job: int, action: int) -> None:
    """Count what an action gives: to a job that has nothing its minimum, otherwise a task or one of each role.

    Args:
        counts: workers and servers so far, (jobs, 2).
        least: see `Tasks`.
        job: whose.
        action: WORKER, SERVER or BOTH.
    """
    first = counts[job, 0] == 0
    counts[job, 0] += least[job, 0] if first else action != SERVER
    counts[job, 1] += least[job, 1] if first else action != WORKER


@inlined
def allowed(tasks: Tasks, counts: Ints, closed: Ints, inference: int, job: int, action: int) -> bool:
    """Return whether an action is allowed: a job's first grant is its minimum of both roles, and it has maxima.

    Args:
        tasks: of the jobs.
        counts: workers and servers given so far, (jobs, 2).
        closed: the inference from which on an action does not fit any more, (jobs, 3).
        inference: the number of the present one.
        job: its index.
        action: WORKER, SERVER or BOTH.
    """
    if closed[job, action] <= inference:
        return False
    if counts[job, 0] == 0:
        return action == BOTH
    return (action == SERVER or counts[job, 0] < tasks.most[job, 0]) and (
        action == WORKER or counts[job, 1] < tasks.most[job, 1]
    )


@inlined
def may_stop(tasks: Tasks, counts: Ints, closed: Ints, inference: int) -> bool:
    """Return whether the filling may stop: not while a job that runs, and has been given nothing yet, would fit.

    Args:
        tasks: of the jobs.
        counts: workers and servers given so far, (jobs, 2).
        closed: the inference from which on an action does not fit any more, (jobs, 3).
        inference: the number of the present one.
    """
    return next_waiting(tasks, counts, closed, inference, 0) == len(counts)


@inlined
def next_waiting(tasks: Tasks, counts: Ints, closed: Ints, inference: int, start: int) -> int:
    """Return the first job from `start` on that stopping has to wait for, or the count of jobs where there is none.

    Jobs before it never have to be waited for again.

    Args:
        tasks: of the jobs.
        counts: workers and servers given so far, (jobs, 2).
        closed: the inference from which on an action does not fit any more, (jobs, 3).
        inference: the number of the present one.
        start: index of a job.
    """
    for job in range(start, len(counts)):
        if tasks.runs[job] and counts[job, 0] == 0 and closed[job, BOTH] > inference:
            return job
    return len(counts)
