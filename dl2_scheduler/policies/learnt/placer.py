"""This module is the learnt placement policy, as numbers: task by task it scores every group, or lets the job wait.

Weights are shared by all groups and jobs, so that neither their order nor their number matters. Jobs go shortest first,
a job's workers and servers in turn. `learning.placement.imitation` makes the weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.learnt.array_files import Shape, length_of
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, remaining_work, waiting

F32 = NDArray[np.float32]

COMPUTING_UNIT = 1200.0
"""Seconds of computing that count as 1: an interval of Harmony's."""


def group_width(models: int) -> int:
    """Return how many numbers describe a group: others' tasks by kind and how long they last, own tasks, room."""
    return 4 * models + 4


def job_width(models: int) -> int:
    """Return how many numbers describe a job, the cluster, and those behind it by kind, to a task of the job."""
    return 3 * models + 9


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


class TaskReader:
    """A `TaskReader` says what the policy reads for the tasks of a draft.

    Args:
        draft: as far as it is, whenever it is read; a job of a model that the network does not know has the number -1
            there.
    """

    def __init__(self, draft: Draft):
        self._draft = draft
        view = draft.view
        self._still = [remaining_work(view, job) / COMPUTING_UNIT for job in range(len(view.jobs))]
        self._model: list[int] = view.placed.model.tolist()
        self._capacity = np.maximum(view.machines.capacity, 1.0)
        self._whole = np.maximum(view.machines.capacity.sum(axis=0), 1.0)

    def inputs(self, job: int, role: int, behind: Sequence[int]) -> PlacerInputs:
        """Return what the policy reads for the next task of a job.

        Args:
            job: index of the job in the view.
            role: of the task.
            behind: jobs that are still to be placed after this one.
        """
        draft, models = self._draft, len(self._draft.view.models)
        rows = np.zeros((len(draft.free), group_width(models)), dtype=np.float32)
        for row, tasks in zip(rows, draft.tasks, strict=True):
            for other, of_role in tasks:
                kind = 2 * self._model[other] + of_role
                if other == job:
                    row[4 * models + of_role] += 1
                elif kind >= 0:
                    row[kind] += 1
                    row[2 * models + kind] += self._still[other]
        rows[:, -2:] = (draft.free - draft.view.demand[job, role]) / self._capacity
        may_wait = not any(draft.groups.get(job, ([], []))) and any(draft.tasks)  # alone it would wait for nothing
        return PlacerInputs(rows, self._about(job, role, behind), np.append(draft.fits(job, role), may_wait))

    def _about(self, job: int, role: int, behind: Sequence[int]) -> F32:
        """Return what the policy reads of a job, the cluster, and the jobs behind it; see `inputs`."""
        view, models = self._draft.view, len(self._draft.view.models)
        state, placed = view.jobs[job].job, self._draft.groups.get(job, ([], []))
        about = np.zeros(job_width(models), dtype=np.float32)
        if self._model[job] >= 0:
            about[self._model[job]] = 1
        for other in behind:
            if self._model[other] >= 0:
                about[models + 2 * self._model[other] :][:2] += view.missing[other] / 3
        about[3 * models :] = [
            role,
            state.max_workers / 3,
            state.max_servers / 3,
            len(placed[0]) / 3,
            len(placed[1]) / 3,
            self._still[job],
            len(behind) / 5,
            *(self._draft.free.sum(axis=0) / self._whole),
        ]
        return about


def place_by(view: PlacementView, choose: Callable[[PlacerInputs], int | None]) -> Places:
    """Place task by task, shortest jobs first, a job's workers and servers in turn.

    Args:
        view: of the cluster.
        choose: returns the group of a task; None: its job waits.
    """
    draft = Draft(view)
    reader = TaskReader(draft)
    order = waiting(view, JobOrder.SHORTEST)
    for number, job in enumerate(order):
        for role in missing_tasks(view, job):
            group = choose(reader.inputs(job, role, order[number + 1 :]))
            if group is None:
                draft.drop(job)
                break
            draft.put(job, role, group)
    return draft.placement()


def best_of(scores: Floats | F32, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return what scores best of what is allowed, the first of equals: groups alike may differ by rounding."""
    found: NDArray[np.int64] = np.where(allowed, np.round(scores, 4), -np.inf).argmax(axis=-1)
    return found


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
        best = int(best_of(self.scores(inputs), inputs.allowed))
        return None if best == len(inputs.groups) or not inputs.allowed[best] else best

    def scores(self, inputs: PlacerInputs) -> Floats:
        """Return a number for each group, and at the end one for waiting, (groups + 1,)."""
        found: Floats = self.scores_of(inputs.groups[None], inputs.job[None])[0].astype(float)
        return found

    def best_of(self, groups: F32, job: F32, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the best choices for many tasks, (tasks,).

        Args:
            groups: see `PlacerInputs`, (tasks, groups, group_width).
            job: see there, (tasks, job_width).
            allowed: see there, (tasks, groups + 1).
        """
        return best_of(self.scores_of(groups, job), allowed)

    def scores_of(self, groups: F32, job: F32) -> F32:
        """Return the scores of many tasks, (tasks, groups + 1).

        Args:
            groups: see `PlacerInputs`, (tasks, groups, group_width).
            job: see there, (tasks, job_width).
        """
        given, (tasks, count, _) = self.arrays, groups.shape
        whole = np.concatenate([job, groups.mean(axis=1)], axis=1)
        about = whole @ given["whole.weight"].T + given["whole.bias"]
        first = (groups.reshape(tasks * count, -1) @ given["group.weight"].T).reshape(tasks, count, -1)
        first = np.maximum(first + about[:, None], 0).reshape(tasks * count, -1)
        second = np.maximum(first @ given["hidden.weight"].T + given["hidden.bias"], 0)
        of_groups = (second @ given["out.weight"][0]).reshape(tasks, count)
        waits = np.maximum(whole @ given["wait.weight"].T + given["wait.bias"], 0)
        of_waiting = waits @ given["rest.weight"].T + given["rest.bias"]
        found: F32 = np.concatenate([of_groups, of_waiting], axis=1)
        return found
