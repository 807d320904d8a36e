"""This module fits what planners and LIF know to measured placements, and how well they predict others."""

from collections.abc import Mapping, Sequence

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.interference import LoadInterference
from dl2_scheduler.cluster.hardware.machines import CPU, GPU, Floats
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement
from dl2_scheduler.cluster.hardware.measured_loads import load_points
from dl2_scheduler.cluster.hardware.measured_table import arrays_of
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.learning.placement.reward_model import FitSettings, fit_pooled
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from dl2_scheduler.sim.placed.samples import PlacedSamples

LEAST_ROWS = 20
"""Fewer placements say too little."""
_BATCH = 32
UPDATES = 3000
"""Of the network."""
_LEAST_POINTS = 6
"""Measurements of a model that a quadratic form needs."""


def samples_of(rows: Sequence[MeasuredPlacement], models: Sequence[str]) -> PlacedSamples:
    """Return measured placements as a model of speeds is fitted to them: the median of each job's speeds.

    Args:
        rows: of models that are known.
        models: in the order of arrays' indices.
    """
    clusters = [arrays_of(row, models) for row in rows]
    return PlacedSamples(clusters, [np.array([job.speed for job in row.jobs]) for row in rows])


def check_enough(rows: Sequence[MeasuredPlacement]) -> None:
    """Refuse to fit speeds to fewer placements than say something. Raises BadInput."""
    if len(rows) < LEAST_ROWS:
        raise BadInput(f"{len(rows)} measured placements are too few to fit speeds to: {LEAST_ROWS} at least")


def fit_measured(
    rows: Sequence[MeasuredPlacement], profiles: Mapping[str, Profile], groups: int, updates: int | None = None
) -> SpeedModel:
    """Fit our model of speeds, and LIF's quadratic form where enough was measured for it.

    Args:
        rows: measured, enough of them: see `check_enough`.
        profiles: of their models.
        groups: of the cluster.
        updates: of the network; None: as many as are enough.
    """
    settings = FitSettings(epochs=max(1, (updates or UPDATES) * _BATCH // len(rows)), batch=_BATCH)
    models = tuple(sorted(profiles))
    speeds = fit_pooled(samples_of(rows, models), profiles, groups, settings)
    return SpeedModel(models, profiles, speeds, fit_load(rows, profiles))


def with_profiles(rows: Sequence[MeasuredPlacement], known: Mapping[str, Profile]) -> dict[str, Profile]:
    """Return a profile of each model, made up where there is none: its median speed, half of a step computing.

    Args:
        rows: measured.
        known: profiles that were measured.
    """
    speeds: dict[str, list[float]] = {}
    for row in rows:
        for job in row.jobs:
            speeds.setdefault(job.model, []).append(job.speed / len(job.workers))
    usual = {model: float(np.median(each)) for model, each in speeds.items()}
    made_up = {model: profile_of_speed(speed) for model, speed in usual.items() if model not in known}
    return {**known, **made_up}


def profile_of_speed(speed: float) -> Profile:
    """Return a profile that says nothing but how many samples a second one worker and one server train on."""
    task = {CPU: 1.0, GPU: 0.0}
    return Profile(1, 1, 0.5 / speed, 1.0, 2 * speed, 2 * speed, task, task, 1.0, 1.0)


def fit_load(
    rows: Sequence[MeasuredPlacement], profiles: Mapping[str, Profile], quadratic: bool = True
) -> LoadInterference | None:
    """Fit LIF's form to what jobs lost beside others; None: a model was measured too rarely.

    Args:
        rows: measured, with each job alone at its places among them.
        profiles: of their models.
        quadratic: the form.
    """
    points = load_points(rows, profiles)
    if not points or min(map(len, points.values())) < _LEAST_POINTS:
        return None
    return LoadInterference.fitted(profiles, points, quadratic)


def errors_of(speeds: PlacedSpeed, rows: Sequence[MeasuredPlacement], models: Sequence[str]) -> dict[str, list[float]]:
    """Return |predicted - measured| / measured of all jobs, by their models.

    Args:
        speeds: predicted ones.
        rows: measured ones.
        models: in the order of arrays' indices.
    """
    found: dict[str, list[float]] = {model: [] for model in models}
    for row in rows:
        for job, error in zip(row.jobs, _errors_at(speeds, row, models), strict=True):
            found[job.model].append(error)
    return found


def mean_error(speeds: PlacedSpeed, row: MeasuredPlacement, models: Sequence[str]) -> float:
    """Return the mean of |predicted - measured| / measured of the jobs of one placement.

    Args:
        speeds: what is fitted.
        row: measured.
        models: in the order of arrays' indices.
    """
    return float(np.mean(_errors_at(speeds, row, models)))


def _errors_at(speeds: PlacedSpeed, row: MeasuredPlacement, models: Sequence[str]) -> list[float]:
    predicted: Floats = speeds.rates(arrays_of(row, models))
    return [abs(speed - job.speed) / job.speed for job, speed in zip(row.jobs, predicted.tolist(), strict=True)]


def folds(rows: Sequence[MeasuredPlacement], count: int, seed: int = 0) -> list[list[MeasuredPlacement]]:
    """Return parts of the placements of several jobs, drawn at random: each is left out once.

    Args:
        rows: measured; those of one job are in no part.
        count: of parts.
        seed: of the draw.
    """
    several = [row for row in rows if len(row.jobs) > 1]
    order = np.random.default_rng(seed).permutation(len(several))
    return [[several[index] for index in order[part::count]] for part in range(count)]
