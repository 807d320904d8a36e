"""This module says where the tasks of all jobs lie, and what it is to know their speeds."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.hardware.machines import Floats, Ints

WORKER, SERVER = 0, 1
"""Roles, as arrays have them."""


@dataclass(frozen=True)
class PlacementArrays:
    """`PlacementArrays` say where all tasks that run lie.

    Attributes:
        model: of each job, an index of the models that the reader knows, (jobs,).
        job: whose task it is, an index of `model`, (tasks,).
        role: WORKER or SERVER, (tasks,).
        group: where it lies, an index of `Machines.sockets`, (tasks,).
        number: of each job, one that it keeps while others come and go, (jobs,): its flows choose among equal paths by
            it.
    """

    model: Ints
    job: Ints
    role: Ints
    group: Ints
    number: Ints

    def counts(self, role: int) -> Ints:
        """Return how many tasks of a role each job has, (jobs,)."""
        counts: Ints = np.bincount(self.job[self.role == role], minlength=len(self.model)).astype(np.int64)
        return counts

    def copied(self) -> "PlacementArrays":
        """Return the same in memory of its own."""
        return PlacementArrays(*(each.copy() for each in (self.model, self.job, self.role, self.group, self.number)))

    def of_tasks(self, tasks: Ints | NDArray[np.bool_]) -> "PlacementArrays":
        """Return where some tasks lie; the jobs are all.

        Args:
            tasks: their indices, or for each task whether it is one.
        """
        job, role, group = (each[tasks] for each in (self.job, self.role, self.group))
        return PlacementArrays(self.model, job, role, group, self.number)

    def replaced(self, jobs: Ints, new: "PlacementArrays") -> "PlacementArrays":
        """Return where all tasks lie when those of some jobs lie elsewhere.

        Args:
            jobs: which.
            new: their tasks; it has all jobs.
        """
        stay = self.of_tasks(~np.isin(self.job, jobs))
        job, role, group = (
            np.concatenate(pair) for pair in ((stay.job, new.job), (stay.role, new.role), (stay.group, new.group))
        )
        return PlacementArrays(self.model, job, role, group, self.number)


@dataclass(frozen=True)
class Rated:
    """`Rated` are placements with the speeds of their jobs, and what a world needs to find those after a change.

    Attributes:
        placements: of all tasks.
        rates: samples a second of each job, (jobs,).
    """

    placements: PlacementArrays
    rates: Floats


class PlacedSpeed(Protocol):
    """A `PlacedSpeed` tells how fast jobs train where their tasks lie, all of them coupled."""

    def rates(self, placements: PlacementArrays) -> Floats:
        """Return samples a second of each job, (jobs,); 0 for one that lacks a role."""


@runtime_checkable
class ChangingSpeed(PlacedSpeed, Protocol):
    """A `ChangingSpeed` rates those jobs anew that feel a change, and no others: what large clusters need."""

    def rated(self, placements: PlacementArrays) -> Rated:
        """Return the rates of all jobs."""

    def delta(self, before: Rated, placements: PlacementArrays, changed: Ints) -> Rated:
        """Return what `rated` returns, rounding apart.

        Args:
            before: what this world has rated.
            placements: of the same jobs, after the change.
            changed: the jobs whose tasks are others, or elsewhere.
        """


@runtime_checkable
class TriedSpeed(PlacedSpeed, Protocol):
    """A `TriedSpeed` rates many places of one job at once: what a planner asks all the time."""

    def tried(self, placements: PlacementArrays, job: int, groups: Ints) -> Floats:
        """Return what `rates` returns where one job's tasks lie elsewhere, rounding apart, (tries, jobs).

        Args:
            placements: of all tasks.
            job: whose tasks lie elsewhere.
            groups: its tasks' groups in each try, in the order of its tasks, (tries, its tasks).
        """


class Interference(Protocol):
    """An `Interference` tells how much slower tasks compute for what lies beside them."""

    def slowdown(self, placements: PlacementArrays) -> Floats:
        """Return what each task's computing takes more than alone, as a part of that, (tasks,): 0 alone, never less."""
