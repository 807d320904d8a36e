"""This module is the learnt placement policy, as numbers: task by task it scores every group, or lets the job wait.

Weights are shared by all groups and jobs, so that neither their order nor their number matters. Jobs go shortest first,
a job's workers and servers in turn. `learning.placement.imitation` makes the weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.learnt.array_files import Shape, length_of
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, remaining_work, waiting

F32 = NDArray[np.float32]

_HOUR = 3600.0


def group_width(models: int) -> int:
    """Return how many numbers describe a group to a task: kinds of others' tasks, own tasks, and what is left."""
    return 2 * models + 4


def job_width(models: int) -> int:
    """Return how many numbers describe a job and the cluster to a task of it."""
    return models + 9


def placer_shapes(models: int, found: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes that the network's arrays have together, by name.

    Args:
        models: that it knows.
        found: shapes of a file's arrays, by which the size of the hidden layers is known.
    """
    group, hidden = group_width(models), length_of(found, "hidden.bias")
    whole = group + job_width(models)
    return {
        "group.weight": (hidden, group),
        "whole.weight": (hidden, whole),
        "whole.bias": (hidden,),
        "hidden.weight": (hidden, hidden),
        "hidden.bias": (hidden,),
        "out.weight": (1, hidden),
        "wait.weight": (hidden, whole),
        "wait.bias": (hidden,),
        "rest.weight": (1, hidden),
        "rest.bias": (1,),
    }


@dataclass(frozen=True)
class PlacerInputs:
    """These `PlacerInputs` are what the policy reads for one task.

    Attributes:
        groups: a row for each group, (groups, group_width).
        job: of its job, role and the cluster as a whole, (job_width,).
        allowed: whether the task fits each group, and whether its job may wait, (groups + 1,): not when it has a place
            for a task already, nor when nothing runs.
    """

    groups: F32
    job: F32
    allowed: NDArray[np.bool_]


def placer_inputs(draft: Draft, job: int, role: int, left: int) -> PlacerInputs:
    """Return what the policy reads for the next task of a job.

    Args:
        draft: as far as it is; a job of a model that the network does not know has the number -1 there.
        job: index of the job in the view.
        role: of the task.
        left: jobs that are still to be placed after this one.
    """
    view = draft.view
    models, capacity = len(view.models), view.machines.capacity
    rows = np.zeros((len(draft.free), group_width(models)), dtype=np.float32)
    for group, tasks in enumerate(draft.tasks):
        for other, of_role in tasks:
            kind = models if other == job else view.placed.model[other]
            if kind >= 0:
                rows[group, 2 * kind + of_role] += 1
    rows[:, -2:] = (draft.free - view.demand[job, role]) / np.maximum(capacity, 1.0)
    state, placed = view.jobs[job].job, draft.groups.get(job, ([], []))
    about = np.zeros(job_width(models), dtype=np.float32)
    if view.placed.model[job] >= 0:
        about[view.placed.model[job]] = 1
    about[models:] = [
        role,
        state.max_workers / 3,
        state.max_servers / 3,
        len(placed[0]) / 3,
        len(placed[1]) / 3,
        remaining_work(view, job) / _HOUR,
        left / 5,
        *(draft.free.sum(axis=0) / np.maximum(capacity.sum(axis=0), 1.0)),
    ]
    fits = (draft.free >= view.demand[job, role] - SLACK).all(axis=1)
    may_wait = not any(placed) and any(draft.tasks)  # in an empty cluster it would wait for nothing
    return PlacerInputs(rows, about, np.append(fits, may_wait))


def place_by(view: PlacementView, choose: Callable[[PlacerInputs], int | None]) -> Places:
    """Place task by task, shortest jobs first, a job's workers and servers in turn.

    Args:
        view: of the cluster.
        choose: returns the group of a task; None: its job waits.
    """
    draft = Draft(view)
    order = waiting(view, JobOrder.SHORTEST)
    for number, job in enumerate(order):
        for role in missing_tasks(view, job):
            group = choose(placer_inputs(draft, job, role, len(order) - number - 1))
            if group is None:
                draft.drop(job)
                break
            draft.put(job, role, group)
    return draft.placement()


@dataclass(frozen=True)
class LearntPlacer:
    """See `PlacementPolicy`: the best of its scores decides.

    Attributes:
        arrays: of the network, by name, as `learning.placement.imitation.PlacerNet` has them.
    """

    arrays: Mapping[str, F32]

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        return place_by(view, self.choose)

    def choose(self, inputs: PlacerInputs) -> int | None:
        """Return the group of a task; None: its job waits, as it does where the task fits nowhere."""
        scores = np.where(inputs.allowed, self.scores(inputs), -np.inf)
        best = int(scores.argmax())
        return None if best == len(inputs.groups) or not inputs.allowed[best] else best

    def scores(self, inputs: PlacerInputs) -> Floats:
        """Return a number for each group, and at the end one for waiting, (groups + 1,)."""
        given = self.arrays
        around = inputs.groups.mean(axis=0)
        whole = np.concatenate([inputs.job, around])
        first = inputs.groups @ given["group.weight"].T + (given["whole.weight"] @ whole + given["whole.bias"])
        second = np.maximum(np.maximum(first, 0) @ given["hidden.weight"].T + given["hidden.bias"], 0)
        waits = np.maximum(given["wait.weight"] @ whole + given["wait.bias"], 0)
        scores = np.append(second @ given["out.weight"][0], given["rest.weight"][0] @ waits + given["rest.bias"][0])
        found: Floats = scores.astype(float)
        return found
