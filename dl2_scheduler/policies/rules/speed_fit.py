"""This module fits speeds online to what jobs report."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.ranges import LEAST_SPEED, MOST_SPEED
from dl2_scheduler.cluster.snapshot import SpeedReport
from dl2_scheduler.cluster.speeds import Grid
from dl2_scheduler.policies.rules.latest_reports import LatestReports

_Floats = NDArray[np.float64]
_Counts = tuple[int, int]  # servers and workers

Reports = Mapping[_Counts, tuple[int, float]]
"""How many reports of each configuration there are, and the mean of their samples a second."""

_GUESS = np.array([1.0, 0.02, 0.3, 0.01, 0.01])  # coefficients before any report, as `terms` has them
_GUESS_AT = np.array([(1.0, 1.0), (4.0, 4.0), (1.0, 16.0), (16.0, 1.0), (16.0, 16.0)])
_GUESS_WEIGHT = 0.1
_SMOOTH, _OCTAVES = 0.15, 0.7  # how far log speed strays from the curve, and over which distance it strays alike
_ROUGH = 0.05  # how far each configuration strays by itself
_NOISE = 0.01  # of a report
_JITTER = 1e-6  # what is added to a covariance of 1, so that it has a root
_GUESS_SPREAD = 1.0  # standard deviation of the logarithms of the guess's coefficients, where speeds are drawn
_STRANGE = 0.5  # and of how much faster or slower than others a model may be that nobody has reported

EXPLORING = 1.0
"""Optimism with which a planner finds the best configurations within some tens of jobs of each model."""


class KnownSpeed(NamedTuple):
    """A `KnownSpeed` is what is known of one configuration of a model.

    Attributes:
        samples_per_second: of all workers together.
        spread: standard deviation of its logarithm.
    """

    samples_per_second: float
    spread: float


class FittedSpeeds:
    """See `SpeedEstimates`: Optimus's model of a synchronous step (Optimus, section 3.2), corrected near the reports.

    The seconds of a sample are a sum of terms in 1/workers, 1, workers/servers, workers and servers, with coefficients
    that non-negative least squares finds. A model that nobody has reported is guessed.
    """

    def __init__(self, optimism: float = 0.0) -> None:
        self._optimism = optimism
        self._reports: dict[str, dict[_Counts, tuple[int, float]]] = {}
        self._latest: dict[str, LatestReports] = {}
        self._borrowed: Mapping[str, Mapping[_Counts, KnownSpeed]] = {}
        self._known: dict[str, Mapping[_Counts, KnownSpeed]] = {}
        self._grids: dict[tuple[str, int, int], Grid] = {}

    @property
    def models(self) -> tuple[str, ...]:
        """The models of which a speed is known."""
        return tuple(self._known)

    @property
    def reports(self) -> Mapping[str, Reports]:
        """The reports of jobs that were observed, by model."""
        return self._reports

    def borrow(self, speeds: Mapping[str, Mapping[_Counts, KnownSpeed]]) -> None:
        """Take what others found out, in the place of what was taken before; one's own reports go first.

        Args:
            speeds: by model and configuration.
        """
        before, self._borrowed = self._borrowed, speeds
        for model in dict.fromkeys([*before, *speeds]):
            if before.get(model) != speeds.get(model):
                self._learn(model)

    def observe(self, reports: Iterable[SpeedReport]) -> None:
        """See `SpeedEstimates.observe`; the latest reports of one configuration are averaged.

        Speeds that cannot be, as histories of earlier releases have them, are left out: no fit to them succeeds.
        """
        told = [report for report in reports if LEAST_SPEED <= report.samples_per_second <= MOST_SPEED]
        for report in told:
            known = self._reports.setdefault(report.model, {})
            latest = self._latest.setdefault(report.model, LatestReports())
            latest.average(known, (report.servers, report.workers), report.samples_per_second)
        for model in dict.fromkeys(report.model for report in told):
            self._learn(model)

    def _learn(self, model: str) -> None:
        """Put together what is known of a model, and forget what was fitted to what was known before."""
        own = {at: KnownSpeed(mean, _NOISE) for at, (_, mean) in self._reports.get(model, {}).items()}
        if known := {**self._borrowed.get(model, {}), **own}:
            self._known[model] = known
        else:
            self._known.pop(model, None)
        self._grids = {key: grid for key, grid in self._grids.items() if key[0] != model}

    def grid(self, job: Job) -> Grid:
        """See `SpeedEstimates.grid`."""
        if job.model not in self._known:
            scale = float(np.exp(np.mean(np.log(self._scales(_GUESS)))))
            return _guessed(job.max_servers, job.max_workers, scale, _GUESS)
        key = job.model, job.max_servers, job.max_workers
        if key not in self._grids:
            self._grids[key] = _grid(self._known[job.model], job.max_servers, job.max_workers, self._optimism)
        return self._grids[key]

    def hopeful(self, optimism: float) -> "FittedSpeeds":
        """Return speeds that are fitted to what is known up to now, with another optimism."""
        found = FittedSpeeds(optimism)
        found._reports = {model: dict(reports) for model, reports in self._reports.items()}
        found._borrowed, found._known = self._borrowed, dict(self._known)
        return found

    def drawn(self, job: Job, random: np.random.Generator) -> Grid:
        """Draw a job's speeds, as `grid` has them, from those that agree with the reports.

        What the reports leave open follows a guess whose coefficients are drawn. Near the curve that is fitted then,
        the speeds are a draw of the Gaussian process: a function, not independent points.
        """
        guess = _GUESS * np.exp(random.normal(0.0, _GUESS_SPREAD, len(_GUESS)))
        if job.model in self._known:
            return _grid(self._known[job.model], job.max_servers, job.max_workers, guess=guess, random=random)
        scale = float(random.choice(self._scales(guess)) * np.exp(random.normal(0.0, _STRANGE)))
        return _guessed(job.max_servers, job.max_workers, scale, guess)

    def _scales(self, guess: _Floats) -> list[float]:
        """Return the factors by which the speeds of the known models differ from a guess."""
        return [_scale(*_arrays(known)[:2], guess) for known in self._known.values()] or [1.0]


def terms(servers: _Floats, workers: _Floats) -> _Floats:
    """Return the terms of the seconds that a sample takes, in a new last axis."""
    one = np.ones_like(workers)
    return np.stack([one / workers, one, workers / servers, workers, servers], axis=-1)


def _guessed(max_servers: int, max_workers: int, scale: float, guess: _Floats) -> Grid:
    """Return the grid of a model that nobody has reported: like the others, so that it goes with them."""
    servers, workers = np.mgrid[1 : max_servers + 1, 1 : max_workers + 1].astype(float)
    grid = np.zeros((max_servers + 1, max_workers + 1))
    grid[1:, 1:] = scale / (terms(servers, workers) @ guess)
    return grid


def _arrays(known: Mapping[_Counts, KnownSpeed]) -> tuple[_Floats, _Floats, _Floats]:
    """Return each configuration's servers and workers, (configurations, 2), its speed and that's spread, one each."""
    speeds, spreads = np.array(list(known.values())).T
    return np.array(list(known), dtype=float), speeds, spreads


def _scale(at: _Floats, speeds: _Floats, guess: _Floats) -> float:
    """Return the factor by which speeds differ from a guess."""
    guessed = 1 / (terms(at[:, 0], at[:, 1]) @ guess)
    return float(np.exp(np.mean(np.log(speeds / guessed))))


def _grid(
    of_model: Mapping[_Counts, KnownSpeed],
    max_servers: int,
    max_workers: int,
    optimism: float = 0.0,
    guess: _Floats = _GUESS,
    random: np.random.Generator | None = None,
) -> Grid:
    """Return the grid of a model of which a speed is known.

    Args:
        of_model: what is known of it.
        max_servers: of the grid.
        max_workers: of the grid.
        optimism: standard deviations that are added.
        guess: the coefficients that decide what the reports leave open.
        random: draws from what agrees with the reports; None: what is most likely.
    """
    servers, workers = np.mgrid[1 : max_servers + 1, 1 : max_workers + 1].astype(float)
    grid = np.zeros((max_servers + 1, max_workers + 1))
    at, speeds, spreads = _arrays(of_model)
    coefficients = _fit(at, speeds, spreads, guess)
    missed = np.log(speeds * (terms(at[:, 0], at[:, 1]) @ coefficients))
    here = np.stack([servers, workers], axis=-1).reshape(-1, 2)
    known = _alike(at, at) + np.diag(spreads**2)
    weights = np.linalg.solve(known, _alike(at, here))
    correction = missed @ weights
    if random is None:
        variance = np.maximum(_SMOOTH**2 + _ROUGH**2 - (weights * _alike(at, here)).sum(axis=0), 0.0)
        correction += optimism * np.sqrt(variance)
    else:
        strays = _strays(np.maximum(at.max(axis=0).astype(int), servers.shape), random)
        reported = strays[tuple(at.astype(int).T - 1)] + spreads * random.normal(size=len(at))
        correction += strays[:max_servers, :max_workers].ravel() - reported @ weights  # Matheron's rule
    grid[1:, 1:] = np.exp(correction).reshape(servers.shape) / (terms(servers, workers) @ coefficients)
    return grid


def _strays(counts: NDArray[np.int64], random: np.random.Generator) -> _Floats:
    """Draw how log speeds stray from the curve before there are reports, for counts from 1 on, (servers, workers)."""
    factors = []
    for most in counts.tolist():
        logs = np.log2(np.arange(1, most + 1))
        alike = np.exp(-((logs[:, None] - logs) ** 2) / (2 * _OCTAVES**2))  # the kernel is a product of the two roles'
        factors.append(np.linalg.cholesky(alike + np.eye(most) * _JITTER))
    smooth = factors[0] @ random.normal(size=counts) @ factors[1].T
    found: _Floats = _SMOOTH * smooth + _ROUGH * random.normal(size=counts)
    return found


def _alike(some: _Floats, others: _Floats) -> _Floats:
    """Return the covariance of how log speeds stray from the curve, (some, others)."""
    squares = ((np.log2(some)[:, None] - np.log2(others)) ** 2).sum(axis=-1)
    found: _Floats = _SMOOTH**2 * np.exp(-squares / (2 * _OCTAVES**2)) + _ROUGH**2 * (squares == 0)
    return found


def _fit(at: _Floats, speeds: _Floats, spreads: _Floats, guess: _Floats) -> _Floats:
    """Return coefficients by least squares of the relative error.

    The guess, to scale, decides what the reports leave open. A speed counts the less the further it may be off the
    curve: by what any speed strays from it, and by its own spread.

    Args:
        at: servers and workers, (configurations, 2).
        speeds: their samples a second, (configurations,).
        spreads: see `KnownSpeed`, (configurations,).
        guess: coefficients.
    """
    strays = _SMOOTH**2 + _ROUGH**2
    sure = np.sqrt((strays + _NOISE**2) / (strays + spreads**2))  # 1 of one's own reports
    beside = _scale(at, speeds, guess) / (terms(_GUESS_AT[:, 0], _GUESS_AT[:, 1]) @ guess)
    rows = np.vstack(
        [
            terms(at[:, 0], at[:, 1]) * (speeds * sure)[:, None],
            _GUESS_WEIGHT * terms(_GUESS_AT[:, 0], _GUESS_AT[:, 1]) * beside[:, None],
        ]
    )
    wanted = np.concatenate([sure, np.full(len(beside), _GUESS_WEIGHT)])
    sizes = np.linalg.norm(rows, axis=0)
    found = lsq_linear(rows / sizes, wanted, bounds=(0, np.inf), method="bvls")  # scipy's nnls may not end
    coefficients: _Floats = np.maximum(found.x, 0.0) / sizes
    return coefficients
