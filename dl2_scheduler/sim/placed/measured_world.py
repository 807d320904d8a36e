"""This module plays measured placements: jobs train as they did on real nodes, and elsewhere as a fit of that says."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement, Places, canonical, merged, renumbered
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacedSpeed, PlacementArrays


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
