"""This module fits a model of speeds anew to what a cluster's own slots have measured, if that makes it better.

Slots show few placements. So the model that is there teaches the new one what it knows of others, by its predictions of
placements drawn at random. Of the placements that are new a third is held out, of which neither model has seen these
measurements; where the new one misses them more, the old one stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, merged
from dl2_scheduler.cluster.hardware.measured_table import arrays_of
from dl2_scheduler.learning.placement.measured_fit import errors_of, profile_of_speed, samples_of
from dl2_scheduler.learning.placement.reward_model import FitSettings, fit_pooled
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from dl2_scheduler.policies.placement.speed_model import SpeedModel

LEAST_NEW = 20
"""Different placements that have to be new before a fit is worth its time."""
MOST_ROWS = 1000
"""Placements of the past that are fitted to, the latest."""
_TAUGHT = 400
"""Placements whose speeds the present model tells."""
_HELD_OUT = 3
_BATCH = 32
_UPDATES = 2000
_MOST_GROUPS = 4
_MOST_JOBS = 3
_MOST_TASKS = 2


@dataclass(frozen=True)
class Refit:
    """A `Refit` is a model that was fitted anew.

    Attributes:
        speeds: of the same types, in the same order.
        error: mean of |predicted - measured| / measured of the jobs of the placements that were held out.
        before: the same of the model that was there.
        held_out: the number of these placements.
        rows: the number of measured placements that it was fitted to.
    """

    speeds: PooledSpeed
    error: float
    before: float
    held_out: int
    rows: int

    @property
    def pays(self) -> bool:
        """Return whether it is to take the place of the model that was there."""
        return self.error <= self.before


def refitted(
    known: SpeedModel, old: Sequence[MeasuredPlacement], new: Sequence[MeasuredPlacement], seed: int = 0
) -> Refit:
    """Return a model that is fitted to measured placements, and how well it and the present one predict others.

    Args:
        known: the present model, with speeds.
        old: placements that it may have been fitted to, of types that it knows.
        new: those since.
        seed: of what is drawn.
    """
    rng = np.random.default_rng(seed)
    fresh = merged(new)
    order = rng.permutation(len(fresh))
    held = [fresh[index] for index in order[: -(-len(fresh) // _HELD_OUT)]]
    rows = merged([*old, *(fresh[index] for index in order[len(held) :])])[-MOST_ROWS:]
    taught = _taught(known, {row.key for row in rows}, rng)
    groups = 1 + max(group for row in (*rows, *taught) for job in row.jobs for group in (*job.workers, *job.servers))
    repeated = [*rows] * max(1, _TAUGHT // max(1, len(rows)))  # what was measured counts for half, at least
    speeds = known.speeds
    if speeds is None:
        raise ValueError("the folder has no model of speeds")
    profiles = {model: profile_of_speed(float(base)) for model, base in zip(known.models, speeds.base, strict=True)}
    samples = samples_of([*repeated, *taught], known.models)
    epochs = max(1, _UPDATES * _BATCH // len(samples))
    found = fit_pooled(samples, profiles, groups, FitSettings(epochs=epochs, batch=_BATCH, seed=seed))
    error, before = (_error(replace(known, speeds=each), held) for each in (found, speeds))
    return Refit(found, error, before, len(held), len(rows))


def known_rows(rows: Sequence[MeasuredPlacement], models: Sequence[str]) -> list[MeasuredPlacement]:
    """Return the placements of which every job is of a type that a model knows."""
    return [row for row in rows if all(job.model in models for job in row.jobs)]


def _taught(known: SpeedModel, measured: set[object], rng: np.random.Generator) -> list[MeasuredPlacement]:
    """Return placements drawn at random that nobody has measured, with the speeds that the present model predicts."""
    rows = []
    for _ in range(_TAUGHT):
        groups = int(rng.integers(1, _MOST_GROUPS + 1))
        many = int(rng.integers(1, _MOST_JOBS + 1))
        drawn = tuple(_drawn_job(known.models, groups, rng) for _ in range(many))
        rates = known.rates(arrays_of(MeasuredPlacement(drawn), known.models)).tolist()
        row = MeasuredPlacement(tuple(replace(job, speeds=(rate,)) for job, rate in zip(drawn, rates, strict=True)))
        if row.key not in measured:
            rows.append(row)
    return rows


def _drawn_job(models: Sequence[str], groups: int, rng: np.random.Generator) -> MeasuredJob:
    workers, servers = (_drawn_groups(groups, rng) for _ in range(2))
    return MeasuredJob(str(rng.choice(models)), workers, servers, (1.0,))


def _drawn_groups(groups: int, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(group) for group in rng.integers(groups, size=int(rng.integers(1, _MOST_TASKS + 1))))


def _error(model: SpeedModel, rows: Sequence[MeasuredPlacement]) -> float:
    found = [error for errors in errors_of(model, rows, model.models).values() for error in errors]
    return float(np.mean(found))
