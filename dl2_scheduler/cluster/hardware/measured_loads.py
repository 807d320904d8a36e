"""This module reads out of measured placements how much slower jobs are for what lies beside them: LIF's points."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.interference import LoadPoint, beside, used_alone
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, placement_key
from dl2_scheduler.cluster.hardware.measured_table import arrays_of
from dl2_scheduler.cluster.hardware.placements import Interference, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile


class AloneSpeeds:
    """These `AloneSpeeds` are what jobs measured that had the cluster to themselves, by where their tasks lay.

    Args:
        rows: measured ones; those of several jobs are left out.
    """

    def __init__(self, rows: Iterable[MeasuredPlacement]):
        self._speeds = {row.key: row.jobs[0].speed for row in rows if len(row.jobs) == 1}

    def of(self, job: MeasuredJob) -> float | None:
        """Return how fast a job trains at its places without any other; None: it was not measured."""
        return self._speeds.get(placement_key([(job.model, job.workers, job.servers)]))


def load_points(rows: Sequence[MeasuredPlacement], profiles: Mapping[str, Profile]) -> dict[str, list[LoadPoint]]:
    """Return what jobs lost beside others, of each model: the other jobs are the load, and what they use alone is it.

    A job is as slow as its worst task, which is taken to be the one with most load beside it. Jobs whose speed alone at
    the same places is not among the rows are left out.

    Args:
        rows: measured.
        profiles: of their models.
    """
    models, alone = sorted(profiles), AloneSpeeds(rows)
    cpu, traffic = used_alone(profiles)
    points: dict[str, list[LoadPoint]] = {model: [] for model in models}
    for row in rows:
        where = arrays_of(row, models)
        model = where.model[where.job]
        cores, exchanged = beside(where, cpu[model, where.role]), beside(where, traffic[model, where.role])
        for number, job in enumerate(row.jobs):
            own = np.flatnonzero(where.job == number)
            worst = own[cores[own].argmax()]
            if (speed := alone.of(job)) is not None:
                points[job.model].append(LoadPoint(cores[worst], exchanged[worst], speed / job.speed - 1))
    return points


@dataclass(frozen=True)
class SlowedSpeed:
    """See `PlacedSpeed`: each job's measured speed alone at its places, divided by the slowdown of its worst task.

    Attributes:
        alone: measured.
        models: in the order of arrays' indices.
        interference: predicts slowdowns.
    """

    alone: AloneSpeeds
    models: Sequence[str]
    interference: Interference

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`; 0 for a job whose speed alone is not known."""
        worst = np.zeros(len(placements.model))
        np.maximum.at(worst, placements.job, self.interference.slowdown(placements))
        jobs = range(len(placements.model))
        found: Floats = np.array([self.alone.of(self._job(placements, job)) or 0.0 for job in jobs]) / (1 + worst)
        return found

    def _job(self, placements: PlacementArrays, job: int) -> MeasuredJob:
        own = placements.job == job
        workers, servers = (tuple(placements.group[own & (placements.role == role)].tolist()) for role in (0, 1))
        return MeasuredJob(self.models[placements.model[job]], workers, servers, ())
