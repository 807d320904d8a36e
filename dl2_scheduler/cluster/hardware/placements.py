"""This module says where the tasks of all jobs lie, and what it is to know their speeds."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

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


class PlacedSpeed(Protocol):
    """A `PlacedSpeed` tells how fast jobs train where their tasks lie, all of them coupled."""

    def rates(self, placements: PlacementArrays) -> Floats:
        """Return samples a second of each job, (jobs,); 0 for one that lacks a role."""


class Interference(Protocol):
    """An `Interference` tells how much slower tasks compute for what lies beside them."""

    def slowdown(self, placements: PlacementArrays) -> Floats:
        """Return what each task's computing takes more than alone, as a part of that, (tasks,): 0 alone, never less."""
