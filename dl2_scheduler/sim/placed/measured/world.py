"""This module plays measured placements: jobs train as they did on real nodes, and elsewhere as a fit of that says."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats, Hardware, Machines, Socket, amounts
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement, Places, canonical, merged, renumbered
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacedSpeed, PlacementArrays
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.placed.workloads import Workload


@dataclass(frozen=True)
class MeasuredWorld:
    """See `PlacedSpeed`: what a table has, each job's median; any other placement is the fit's.

    Attributes:
        table: measured.
        fitted: for placements that it lacks, with models in the table's order.
    """

    table: MeasuredTable
    fitted: PlacedSpeed

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        jobs = [self._places(placements, job) for job in range(len(placements.model))]
        whole = [index for index, (_, workers, servers) in enumerate(jobs) if workers and servers]
        key, _ = canonical([jobs[index] for index in whole])
        row = self._rows.get(key)
        if row is None:
            return self.fitted.rates(placements)
        rates = np.zeros(len(jobs))
        for index, job in zip(_in_order([jobs[index] for index in whole]), row.jobs, strict=True):
            rates[whole[index]] = job.speed
        return rates

    @cached_property
    def _rows(self) -> Mapping[tuple[Any, ...], MeasuredPlacement]:
        return {row.key: row for row in merged(self.table.placements)}

    def _places(self, placements: PlacementArrays, job: int) -> Places:
        own = placements.job == job
        workers, servers = (
            tuple(placements.group[own & (placements.role == role)].tolist()) for role in (WORKER, SERVER)
        )
        return self.table.models[placements.model[job]], workers, servers


def _in_order(jobs: list[Places]) -> list[int]:
    """Return the jobs' indices in the order in which a merged row has them."""
    _, names = canonical(jobs)
    forms = [renumbered(job, names) for job in jobs]
    return sorted(range(len(jobs)), key=forms.__getitem__)


def measured_scenario(
    table: MeasuredTable, fitted: PlacedSpeed, mean: float, pattern: str, machines: Machines | None = None
) -> Scenario:
    """Return a cluster like that of a table, with jobs of its models: no more tasks than every model was measured with.

    Args:
        table: measured.
        fitted: see `MeasuredWorld`.
        mean: jobs an interval.
        pattern: see `Workload`.
        machines: of the cluster; None: as many nodes as were measured, which hold as many jobs together as were
            measured beside each other.

    Raises:
        BadInput: see `Workload`.
    """
    counts: dict[str, int] = {}
    for job in (job for row in table.placements for job in row.jobs):
        counts[job.model] = max(counts.get(job.model, 1), min(len(job.workers), len(job.servers)))
    most, together = min(counts.values()), max(len(row.jobs) for row in table.placements)
    profiles = {model: table.profiles[model] for model in counts}
    if machines is None:
        takes = [amounts(profile.worker) + amounts(profile.server) for profile in profiles.values()]
        cpus, gpus = (
            math.ceil(together * most * max(each[kind] + each[kind + 2] for each in takes) / table.groups)
            for kind in (0, 1)
        )
        machines = Machines.alike(Hardware((Socket(cores=max(1, cpus), gpus=gpus, threads=1),)), table.groups)
    world = MeasuredWorld(replace(table, profiles=profiles), fitted)
    workload = Workload(profiles, mean=mean, pattern=pattern, most=most)
    return Scenario(machines, flat_of(machines), profiles, world, workload)
