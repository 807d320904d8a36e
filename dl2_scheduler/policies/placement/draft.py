"""This module keeps a placement while a policy makes it: what is free, what lies where, and what can be undone."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.view import PlacementView, Places

Task = tuple[int, int]
"""A job's index in the view, and a role."""


class Draft:
    """A `Draft` begins as the view shows the cluster, and gets one task after another.

    Args:
        view: of the cluster.

    Attributes:
        view: of the cluster.
        free: what groups have left, (groups, 2).
        tasks: those of each group, old and new ones.
        groups: where the new tasks of each job lie, by role.
        within: the groups that a job's new tasks may get, by its index; a job that is not named may get all.
    """

    def __init__(self, view: PlacementView):
        self.view = view
        self.free: Floats = view.free.copy()
        self.tasks: list[list[Task]] = [[] for _ in view.free]
        placed = view.placed
        for job, role, group in zip(placed.job.tolist(), placed.role.tolist(), placed.group.tolist(), strict=True):
            self.tasks[group].append((job, role))
        self.groups: dict[int, tuple[list[int], list[int]]] = {}
        self.within: dict[int, Ints] = {}
        self._all: Ints = np.arange(len(view.free))

    def reach(self, job: int) -> Ints:
        """Return the groups that a job's new tasks may get, whether they fit there or not."""
        return self.within.get(job, self._all)

    def fits(self, job: int, role: int, groups: Ints | None = None) -> NDArray[np.bool_]:
        """Return whether a task may go to each group, and still fits there, (groups,).

        Args:
            job: its index.
            role: of the task.
            groups: that are asked about; None: all.
        """
        free, may = self.free, self.view.may(job, role)
        if groups is not None:
            free, may = free[groups], may[groups]
        # a group that has less than nothing left of what the task does not need takes it
        room = np.maximum(free, 0.0) >= self.view.demand[job, role] - SLACK
        found: NDArray[np.bool_] = np.logical_and.reduce(room.T) & may  # numpy is slow along short rows
        return found

    def fitting(self, job: int, role: int) -> Ints:
        """Return the groups that a task may get and where it still fits."""
        fits = self.fits(job, role)
        found: Ints = self.within[job][fits[self.within[job]]] if job in self.within else fits.nonzero()[0]
        return found

    def put(self, job: int, role: int, group: int) -> None:
        """Give a task its place.

        Args:
            job: its index in the view.
            role: of the task.
            group: where it goes.
        """
        self.free[group] -= self.view.demand[job, role]
        self.tasks[group].append((job, role))
        self.groups.setdefault(job, ([], []))[role].append(group)

    def put_all(self, job: int, roles: Sequence[Sequence[int]]) -> None:
        """Give a job's tasks their places: the groups of its workers, and of its servers."""
        for role, groups in enumerate(roles):
            for group in groups:
                self.put(job, role, group)

    def move(self, job: int, role: int, index: int, group: int) -> int:
        """Give a new task another place, and return the one that it had.

        Args:
            job: its index.
            role: of the task.
            index: of the task, among the new ones of the job and role.
            group: where it goes, whether it fits there or not.
        """
        own = self.groups[job][role]
        before, own[index] = own[index], group
        demand = self.view.demand[job, role]
        self.free[before] += demand
        self.free[group] -= demand
        self.tasks[before].remove((job, role))
        self.tasks[group].append((job, role))
        return before

    def drop(self, job: int) -> None:
        """Take a job's new tasks back."""
        for role, groups in enumerate(self.groups.pop(job, ([], []))):
            for group in groups:
                self.free[group] += self.view.demand[job, role]
                self.tasks[group].remove((job, role))

    def arrays(self) -> PlacementArrays:
        """Return where all tasks lie, new ones behind the old ones."""
        placed = self.view.placed
        rows = [
            (job, role, group)
            for job, roles in self.groups.items()
            for role in (WORKER, SERVER)
            for group in roles[role]
        ]
        job, role, group = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return PlacementArrays(
            placed.model,
            np.concatenate([placed.job, job]),
            np.concatenate([placed.role, role]),
            np.concatenate([placed.group, group]),
            placed.number,
        )

    def placement(self) -> Places:
        """Return what a policy answers."""
        return Places({job: (tuple(roles[0]), tuple(roles[1])) for job, roles in self.groups.items()})


def missing_tasks(view: PlacementView, job: int) -> Iterator[int]:
    """Yield the roles of a job's missing tasks, a worker and a server in turn."""
    left = view.missing[job].tolist()
    while any(left):
        for role in (WORKER, SERVER):
            if left[role]:
                left[role] -= 1
                yield role
