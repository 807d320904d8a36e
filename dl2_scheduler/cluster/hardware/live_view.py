"""This module makes what a placement policy sees of a live cluster's nodes, jobs and tasks. It is pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Hardware, Machines, Socket
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.cluster.snapshot import JobState

UNKNOWN_PROFILE = Profile(1, 1, 1.0, 1.0, 1000.0, 1000.0, {}, {}, 1.0, 1.0)
"""Of a type that nobody has profiled: by it jobs are ordered by the samples that each of their workers has left."""

Amounts = tuple[float, float]
"""Cpus and GPUs."""


@dataclass(frozen=True)
class LiveJob:
    """A `LiveJob` is a job whose tasks have places, or miss some.

    Attributes:
        state: of the job.
        number: that it keeps while others come and go.
        demand: of a worker and of a server.
        placed: groups of its workers, and of its servers.
        missing: workers and servers that are to get a place.
        rate: samples a second that it measured last; 0: none.
    """

    state: JobState
    number: int
    demand: tuple[Amounts, Amounts]
    placed: tuple[Sequence[int], Sequence[int]]
    missing: tuple[int, int]
    rate: float = 0.0


@dataclass(frozen=True)
class LiveNodes:
    """These `LiveNodes` are the nodes of a live cluster, each with its groups.

    Attributes:
        names: of the nodes.
        machines: what is in them.
        free: what groups have left, (groups, 2).
    """

    names: tuple[str, ...]
    machines: Machines
    free: Sequence[Amounts]


def plain_hardware(cpus: float, gpus: float) -> Hardware:
    """Return a node of one socket about which no more is known; a cpu is a core of one thread."""
    return Hardware((Socket(cores=int(cpus), gpus=int(gpus), threads=1),))


def live_view(now: float, nodes: LiveNodes, jobs: Sequence[LiveJob]) -> PlacementView:
    """Return what a placement policy sees: types in alphabetical order, each with a profile that says nothing.

    Args:
        now: seconds since the cluster began.
        nodes: of the cluster.
        jobs: by arrival.
    """
    models = tuple(sorted({job.state.job.model for job in jobs}))
    rows = [
        (index, role, group)
        for index, job in enumerate(jobs)
        for role, groups in enumerate(job.placed)
        for group in groups
    ]
    job, role, group = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    model = np.array([models.index(each.state.job.model) for each in jobs], dtype=np.int64)
    number = np.array([each.number for each in jobs], dtype=np.int64)
    return PlacementView(
        now,
        nodes.machines,
        flat_of(nodes.machines),
        models,
        dict.fromkeys(models, UNKNOWN_PROFILE),
        tuple(each.state for each in jobs),
        np.array([each.demand for each in jobs], dtype=float).reshape(-1, 2, 2),
        np.array([each.missing for each in jobs], dtype=np.int64).reshape(-1, 2),
        PlacementArrays(model, job.copy(), role.copy(), group.copy(), number),
        np.array(nodes.free, dtype=float).reshape(-1, 2),
        np.array([each.rate for each in jobs], dtype=float),
    )
