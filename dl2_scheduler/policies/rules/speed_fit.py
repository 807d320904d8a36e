"""This module fits speeds online to what jobs report."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import SpeedReport
from dl2_scheduler.cluster.speeds import Grid

_Floats = NDArray[np.float64]
_Counts = Mapping[tuple[int, int], tuple[int, float]]  # (servers, workers): how many reports, mean samples a second

_GUESS = np.array([1.0, 0.02, 0.3, 0.01, 0.01])  # coefficients before any report, as `terms` has them
_GUESS_AT = np.array([(1.0, 1.0), (4.0, 4.0), (1.0, 16.0), (16.0, 1.0), (16.0, 16.0)])
_GUESS_WEIGHT = 0.1
_SMOOTH, _OCTAVES = 0.15, 0.7  # how far log speed strays from the curve, and over which distance it strays alike
_ROUGH = 0.05  # how far each configuration strays by itself
_NOISE = 0.01  # of a report

EXPLORING = 1.0
"""Optimism with which a planner finds the best configurations within some tens of jobs of each model."""


class FittedSpeeds:
    """See `SpeedEstimates`: Optimus's model of a synchronous step (Optimus, section 3.2), corrected near the reports.

    The seconds of a sample are a sum of terms in 1/workers, 1, workers/servers, workers and servers, with coefficients
    that non-negative least squares finds. A model that nobody has reported is guessed.
    """

    def __init__(self, optimism: float = 0.0) -> None:
        self._optimism = optimism
        self._reports: dict[str, dict[tuple[int, int], tuple[int, float]]] = {}
        self._grids: dict[tuple[str, int, int], Grid] = {}

    def observe(self, reports: Iterable[SpeedReport]) -> None:
        """See `SpeedEstimates.observe`; reports of one configuration are averaged."""
        for report in reports:
            if report.samples_per_second <= 0:
                continue
            known = self._reports.setdefault(report.model, {})
            count, mean = known.get((report.servers, report.workers), (0, 0.0))
            mean += (report.samples_per_second - mean) / (count + 1)
            known[report.servers, report.workers] = count + 1, mean
            self._grids = {key: grid for key, grid in self._grids.items() if key[0] != report.model}

    def grid(self, job: Job) -> Grid:
        """See `SpeedEstimates.grid`."""
        if job.model not in self._reports:
            scales = [_scale(*_arrays(reports)) for reports in self._reports.values()]
            return _guessed(job.max_servers, job.max_workers, float(np.exp(np.mean(np.log(scales)))) if scales else 1.0)
        key = job.model, job.max_servers, job.max_workers
        if key not in self._grids:
            self._grids[key] = _grid(self._reports[job.model], job.max_servers, job.max_workers, self._optimism)
        return self._grids[key]


def terms(servers: _Floats, workers: _Floats) -> _Floats:
    """Return the terms of the seconds that a sample takes, in a new last axis."""
    one = np.ones_like(workers)
    return np.stack([one / workers, one, workers / servers, workers, servers], axis=-1)


def _guessed(max_servers: int, max_workers: int, scale: float) -> Grid:
    """Return the grid of a model that nobody has reported: like the others, so that it goes with them."""
    servers, workers = np.mgrid[1 : max_servers + 1, 1 : max_workers + 1].astype(float)
    grid = np.zeros((max_servers + 1, max_workers + 1))
    grid[1:, 1:] = scale / (terms(servers, workers) @ _GUESS)
    return grid


def _arrays(reports: _Counts) -> tuple[_Floats, _Floats]:
    """Return each configuration's servers and workers, (configurations, 2), and its mean speed, (configurations,)."""
    return np.array(list(reports), dtype=float), np.array([mean for _, mean in reports.values()])


def _scale(at: _Floats, speeds: _Floats) -> float:
    """Return the factor by which speeds differ from the guess."""
    guessed = 1 / (terms(at[:, 0], at[:, 1]) @ _GUESS)
    return float(np.exp(np.mean(np.log(speeds / guessed))))


def _grid(reports: _Counts, max_servers: int, max_workers: int, optimism: float) -> Grid:
    servers, workers = np.mgrid[1 : max_servers + 1, 1 : max_workers + 1].astype(float)
    grid = np.zeros((max_servers + 1, max_workers + 1))
    at, speeds = _arrays(reports)
    coefficients = _fit(at, speeds)
    missed = np.log(speeds * (terms(at[:, 0], at[:, 1]) @ coefficients))
    here = np.stack([servers, workers], axis=-1).reshape(-1, 2)
    known = _alike(at, at) + np.eye(len(at)) * _NOISE**2
    weights = np.linalg.solve(known, _alike(at, here))
    correction = missed @ weights
    variance = np.maximum(_SMOOTH**2 + _ROUGH**2 - (weights * _alike(at, here)).sum(axis=0), 0.0)
    correction += optimism * np.sqrt(variance)
    grid[1:, 1:] = np.exp(correction).reshape(servers.shape) / (terms(servers, workers) @ coefficients)
    return grid


def _alike(some: _Floats, others: _Floats) -> _Floats:
    """Return the covariance of how log speeds stray from the curve, (some, others)."""
    squares = ((np.log2(some)[:, None] - np.log2(others)) ** 2).sum(axis=-1)
    found: _Floats = _SMOOTH**2 * np.exp(-squares / (2 * _OCTAVES**2)) + _ROUGH**2 * (squares == 0)
    return found


def _fit(at: _Floats, speeds: _Floats) -> _Floats:
    """Return coefficients by least squares of the relative error.

    The guess, to scale, decides what the reports leave open.
    """
    beside = _scale(at, speeds) / (terms(_GUESS_AT[:, 0], _GUESS_AT[:, 1]) @ _GUESS)
    rows = np.vstack(
        [
            terms(at[:, 0], at[:, 1]) * speeds[:, None],
            _GUESS_WEIGHT * terms(_GUESS_AT[:, 0], _GUESS_AT[:, 1]) * beside[:, None],
        ]
    )
    wanted = np.concatenate([np.ones(len(speeds)), np.full(len(beside), _GUESS_WEIGHT)])
    sizes = np.linalg.norm(rows, axis=0)
    found = lsq_linear(rows / sizes, wanted, bounds=(0, np.inf), method="bvls")  # scipy's nnls may not end
    coefficients: _Floats = np.maximum(found.x, 0.0) / sizes
    return coefficients
