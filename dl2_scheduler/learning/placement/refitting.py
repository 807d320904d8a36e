"""This module fits a model of speeds anew to what a cluster's own slots have measured, if that makes it better.

Slots show few placements. So the model that is there teaches the new one what it knows of others, by its predictions of
placements drawn at random, small ones and such as the cluster has. A third of all placements is held out for ever, by
what they are: no fit sees them. The new model takes the place of the present one where it is surely better there, and
no worse than the first one: so that no row of lucky fits, each a little worse, leads away from where it began.
"""

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, PlacementKey
from dl2_scheduler.cluster.hardware.measured_table import arrays_of
from dl2_scheduler.learning.placement.measured_fit import mean_error, profile_of_speed, samples_of
from dl2_scheduler.learning.placement.reward_model import FitSettings, fit_pooled
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from dl2_scheduler.sim.metrics import estimate

LEAST_NEW = 20
"""Different placements that have to be new before a fit is worth its time."""
LEAST_HELD_OUT = 10
"""Placements that have to be held out before models are compared by them."""
MOST_ROWS = 1000
"""Placements of the past that are fitted to, the latest; and as many again are held out, at most."""
_TAUGHT = 400
"""Placements whose speeds the present model tells."""
_HELD_OUT = 3
"""Of so many placements one is held out."""
_BATCH = 32
_UPDATES = 2000
_MOST_GROUPS = 4
_MOST_JOBS = 3
_MOST_TASKS = 2
"""Of a role of a job, in the small placements that are drawn."""


@dataclass(frozen=True)
class Refit:
    """A `Refit` is a model that was fitted anew, and how it compares.

    Attributes:
        speeds: of the same types, in the same order.
        errors: its mean of |predicted - measured| / measured of the jobs of each placement that was held out.
        before: the same of the model that is there.
        first: the same of the model from which refitting began.
        rows: the number of measured placements that it was fitted to.
    """

    speeds: PooledSpeed
    errors: Floats
    before: Floats
    first: Floats
    rows: int

    @property
    def pays(self) -> bool:
        """Return whether it is to take the place of the model that is there."""
        return _surely_better(self.errors, self.before) and bool(self.errors.mean() <= self.first.mean())

    @property
    def goes_back(self) -> bool:
        """Return whether the first model is to do so, as what came of it has become worse."""
        return not self.pays and _surely_better(self.first, self.before)


def _surely_better(errors: Floats, others: Floats) -> bool:
    """Return whether errors are lower than others at the same placements, by more than chance in 95 of 100 cases."""
    found = estimate((errors - others).tolist())
    return len(errors) >= LEAST_HELD_OUT and found.margin is not None and found.mean + found.margin < 0


def is_held_out(key: PlacementKey) -> bool:
    """Return whether a placement of this key is one of those that no fit sees."""
    return zlib.crc32(repr(key).encode()) % _HELD_OUT == 0


def refitted(known: SpeedModel, first: PooledSpeed, measured: Sequence[MeasuredPlacement], seed: int = 0) -> Refit:
    """Return a model that is fitted to measured placements, and how well it and others predict what is held out.

    Args:
        known: the present model, with speeds.
        first: the model from which refitting began, of the same types.
        measured: different placements of types that it knows, the latest last; enough of both kinds.
        seed: of what is drawn.
    """
    speeds = known.speeds
    if speeds is None:
        raise ValueError("the folder has no model of speeds")
    rng = np.random.default_rng(seed)
    held = [row for row in measured if is_held_out(row.key)][-MOST_ROWS:]
    rows = [row for row in measured if not is_held_out(row.key)][-MOST_ROWS:]
    taught = _taught(known, rows, rng)
    groups = 1 + max(group for row in (*rows, *taught) for job in row.jobs for group in (*job.workers, *job.servers))
    repeated = [*rows] * max(1, _TAUGHT // max(1, len(rows)))  # what was measured counts for half, at least
    profiles = {model: profile_of_speed(float(base)) for model, base in zip(known.models, speeds.base, strict=True)}
    samples = samples_of([*repeated, *taught], known.models)
    epochs = max(1, _UPDATES * _BATCH // len(samples))
    found = fit_pooled(samples, profiles, groups, FitSettings(epochs=epochs, batch=_BATCH, seed=seed))
    errors, before, at_first = (_errors(replace(known, speeds=each), held) for each in (found, speeds, first))
    return Refit(found, errors, before, at_first, len(rows))


def _taught(
    known: SpeedModel, measured: Sequence[MeasuredPlacement], rng: np.random.Generator
) -> list[MeasuredPlacement]:
    """Return placements drawn at random that nobody has measured, with the speeds that the present model predicts.

    Half of them are small, half are as large as one that was measured. Where all that was measured of a type is slower
    than predicted, or faster, so is what is told of it: else the new model would learn that nothing else is.
    """
    keys = {row.key for row in measured}
    ratios = _ratios(known, measured)
    rows = []
    for number in range(_TAUGHT):
        like = measured[int(rng.integers(len(measured)))] if measured and number % 2 else None
        drawn = _small(known.models, rng) if like is None else _alike(like, known.models, rng)
        rates = known.rates(arrays_of(MeasuredPlacement(drawn), known.models)).tolist()
        told = ((job, rate * ratios.get(job.model, 1.0)) for job, rate in zip(drawn, rates, strict=True))
        row = MeasuredPlacement(tuple(replace(job, speeds=(speed,)) for job, speed in told))
        if row.key not in keys:
            rows.append(row)
    return rows


def _ratios(known: SpeedModel, measured: Sequence[MeasuredPlacement]) -> dict[str, float]:
    """Return the median of measured over predicted speeds of each type that was measured."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in measured:
        rates = known.rates(arrays_of(row, known.models)).tolist()
        for job, rate in zip(row.jobs, rates, strict=True):
            found[job.model].append(job.speed / rate)
    return {model: float(np.median(each)) for model, each in found.items()}


def _alike(row: MeasuredPlacement, models: Sequence[str], rng: np.random.Generator) -> tuple[MeasuredJob, ...]:
    """Return jobs with as many tasks on as many groups as those of a placement, of other types at other places."""
    groups = np.unique([group for job in row.jobs for group in (*job.workers, *job.servers)])

    def drawn(tasks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(rng.choice(groups, size=len(tasks)).tolist())

    return tuple(
        MeasuredJob(str(rng.choice(models)), drawn(job.workers), drawn(job.servers), (1.0,)) for job in row.jobs
    )


def _small(models: Sequence[str], rng: np.random.Generator) -> tuple[MeasuredJob, ...]:
    groups = int(rng.integers(1, _MOST_GROUPS + 1))
    return tuple(_drawn_job(models, groups, rng) for _ in range(int(rng.integers(1, _MOST_JOBS + 1))))


def _drawn_job(models: Sequence[str], groups: int, rng: np.random.Generator) -> MeasuredJob:
    workers, servers = (_drawn_groups(groups, rng) for _ in range(2))
    return MeasuredJob(str(rng.choice(models)), workers, servers, (1.0,))


def _drawn_groups(groups: int, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(group) for group in rng.integers(groups, size=int(rng.integers(1, _MOST_TASKS + 1))))


def _errors(model: SpeedModel, rows: Sequence[MeasuredPlacement]) -> Floats:
    """Return the mean error of each placement's jobs, (placements,)."""
    found: Floats = np.array([mean_error(model, row, model.models) for row in rows])
    return found
