"""This module holds what a placement policy sees, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import CPU, GPU, Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.snapshot import JobState

RESOURCES = (CPU, GPU)
"""Of groups, in the order of arrays."""


@dataclass(frozen=True)
class PlacementView:
    """A `PlacementView` shows a cluster whose jobs have been granted their counts, and whose new tasks have no place.

    Attributes:
        now: seconds since the cluster began.
        machines: nodes and their groups.
        topology: how nodes are linked.
        models: names, in the order of `placed.model`.
        profiles: of the models.
        jobs: all that have arrived and not ended, by arrival.
        demand: what a task of each job and role takes, (jobs, 2, 2): by role, then cpus and GPUs.
        missing: tasks of each job that have a grant and no place yet, (jobs, 2): workers, servers.
        placed: where tasks lie that have a place; its jobs are `jobs`.
        free: what the groups have left, (groups, 2): cpus, GPUs.
        rates: samples a second that each job measured last, (jobs,); 0: it has not run yet.
        allowed: whether new tasks of a job and role may go to a group, be it full or not, (jobs, 2, groups); None: all
            may go to each.
    """

    now: float
    machines: Machines
    topology: Topology
    models: tuple[str, ...]
    profiles: Mapping[str, Profile]
    jobs: tuple[JobState, ...]
    demand: Floats
    missing: Ints
    placed: PlacementArrays
    free: Floats
    rates: Floats
    allowed: NDArray[np.bool_] | None = None

    def may(self, job: int, role: int) -> NDArray[np.bool_]:
        """Return the groups that new tasks of a job and role may go to, full or not, (groups,).

        Args:
            job: its index.
            role: of the tasks.
        """
        return np.ones(len(self.free), dtype=np.bool_) if self.allowed is None else self.allowed[job, role]

    def copied(self) -> "PlacementView":
        """Return the same view with numbers of its own, for a reader who may write into it."""
        own = ("demand", "missing", "free", "rates")
        numbers = {name: getattr(self, name).copy() for name in own}
        allowed = None if self.allowed is None else self.allowed.copy()
        return replace(self, **numbers, placed=self.placed.copied(), allowed=allowed)

    @cached_property
    def whole_work(self) -> Floats:
        """Samples that each job needs from its beginning to its end, (jobs,)."""
        return np.array([state.job.estimate * state.job.samples_per_epoch for state in self.jobs], dtype=float)

    @cached_property
    def work_left(self) -> Floats:
        """Samples that each job still needs, (jobs,)."""
        return np.array([state.remaining_epochs * state.job.samples_per_epoch for state in self.jobs], dtype=float)


Placed = tuple[tuple[int, ...], tuple[int, ...]]
"""The groups of a job's new workers and of its new servers."""


@dataclass(frozen=True)
class Places:
    """`Places` are what missing tasks get.

    Attributes:
        groups: by the job's index in the view, the groups of its new workers and of its new servers: all that it
            misses. A job that is not named waits, or goes on with what it has.
    """

    groups: Mapping[int, Placed] = field(default_factory=dict)


def plain_places(answer: Places) -> Places:
    """Return an answer as plain numbers in plain containers: a user's policy may answer what computes when it is read.

    Raises:
        TypeError: jobs or groups are no whole numbers.
    """
    if not isinstance(answer, Places):
        return answer  # `check_placement` says so
    found = {index(job): tuple(tuple(map(index, role)) for role in roles) for job, roles in answer.groups.items()}
    return Places(cast(dict[int, Placed], found))


def check_placement(view: PlacementView, placement: Places) -> None:
    """Refuse a placement that gives half a job its places, takes a group that is not there, or more than one has.

    Raises:
        BadInput: with the job or the group; or it is no placement at all.
    """
    if not isinstance(placement, Places):
        raise BadInput(f"a {type(placement).__name__} was answered instead of Places")
    free = view.free.copy()
    for job, roles in placement.groups.items():
        if job not in range(len(view.jobs)) or len(roles) != 2:
            raise BadInput(f"job {job}: the view has {len(view.jobs)} jobs, whose places are those of two roles")
        for role in (WORKER, SERVER):
            if len(roles[role]) != view.missing[job, role]:
                what = ("workers", "servers")[role]
                raise BadInput(f"job {job}: {len(roles[role])} {what} were placed of {view.missing[job, role]}")
            for group in roles[role]:
                if group not in range(len(free)):
                    raise BadInput(f"job {job}: group {group} is not there: the cluster has {len(free)}")
                if not view.may(job, role)[group]:
                    raise BadInput(f"job {job}: its tasks may not go to group {group}")
                free[group] -= view.demand[job, role]
    if (over := (free < np.minimum(view.free, 0.0) - 1e-9).any(axis=1)).any():
        raise BadInput(f"group {int(over.argmax())} would have to hold more than it has: {free[over.argmax()]} is left")
