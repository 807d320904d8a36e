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
from dl2_scheduler.policies.rules.speed_forms import WITH_SERVERS, WITHOUT_SERVERS, SpeedForm, form_of

_Floats = NDArray[np.float64]
_Counts = tuple[int, int]  # servers and workers; no servers: the job has none
_Known = Mapping[_Counts, "KnownSpeed"]

Reports = Mapping[_Counts, tuple[int, float]]
"""How many reports of each configuration there are, and the mean of their samples a second."""

_GUESS_WEIGHT = 0.1
_SMOOTH, _OCTAVES = 0.15, 0.7  # how far log speed strays from the curve, and over which distance it strays alike
_ROUGH = 0.05  # how far each configuration strays by itself
_NOISE = 0.01  # of a report
_JITTER = 1e-6  # what is added to a covariance of 1, so that it has a root
_GUESS_SPREAD = 1.0  # standard deviation of the logarithms of the guess's coefficients, where speeds are drawn
_STRANGE = 0.5  # and of how much faster or slower than others a model may be that nobody has reported
_MOST_MODELS = 1000  # that are remembered: where an image names a type, each build of it may be another

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
    """See `SpeedEstimates`: a model of a synchronous step (`speed_forms`), corrected near the reports.

    The seconds of a sample are a sum of terms with coefficients that non-negative least squares finds. A model that
    nobody has reported is guessed, and one that nobody has reported for long, while many others were, is forgotten.
    Jobs of one model with servers and without tell of each other only how large the model is, as long as nobody has
    reported one of the other kind.
    """

    def __init__(self, optimism: float = 0.0) -> None:
        self._optimism = optimism
        self._reports: dict[str, dict[_Counts, tuple[int, float]]] = {}
        self._latest: dict[str, LatestReports] = {}  # those that were reported last come last
        self._borrowed: Mapping[str, _Known] = {}
        self._known: dict[str, _Known] = {}
        self._grids: dict[tuple[str, int, int], Grid] = {}
        self._usual: float | None = None  # the scale of a model of which nothing is known

    @property
    def models(self) -> tuple[str, ...]:
        """The models of which a speed is known."""
        return tuple(self._known)

    @property
    def reports(self) -> Mapping[str, Reports]:
        """The reports of jobs that were observed, by model."""
        return self._reports

    def borrow(self, speeds: Mapping[str, _Known]) -> None:
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

        Those of jobs that stand are left out, and speeds that cannot be, as histories of earlier releases have them: no
        fit to them succeeds.
        """
        moving = (report for report in reports if not report.stands)
        told = [report for report in moving if LEAST_SPEED <= report.samples_per_second <= MOST_SPEED]
        for report in told:
            known = self._reports.setdefault(report.model, {})
            latest = self._latest.pop(report.model) if report.model in self._latest else LatestReports()
            self._latest[report.model] = latest
            latest.average(known, (report.servers, report.workers), report.samples_per_second)
        for model in dict.fromkeys(report.model for report in told):
            self._learn(model)
        self._forget_old()

    def _forget_old(self) -> None:
        for model in list(self._latest)[: max(0, len(self._latest) - _MOST_MODELS)]:
            del self._latest[model], self._reports[model]
            self._learn(model)

    def _learn(self, model: str) -> None:
        """Put together what is known of a model, and forget what was fitted to what was known before."""
        own = {at: KnownSpeed(mean, _NOISE) for at, (_, mean) in self._reports.get(model, {}).items()}
        if known := {**self._borrowed.get(model, {}), **own}:
            self._known[model] = known
        else:
            self._known.pop(model, None)
        self._grids = {key: grid for key, grid in self._grids.items() if key[0] != model}
        self._usual = None

    def grid(self, job: Job) -> Grid:
        """See `SpeedEstimates.grid`."""
        key = job.model, job.max_servers, job.max_workers
        if key in self._grids:
            return self._grids[key]
        form = form_of(job)
        if known := _of_form(self._known.get(job.model, {}), form):
            self._grids[key] = _grid(job, known, form.guess, self._optimism)
            return self._grids[key]
        if job.model in self._known:
            return _guessed(job, self._mean_scale(job.model), form.guess)
        if self._usual is None:  # all that is known goes into it
            self._usual = self._mean_scale(job.model)
        return _guessed(job, self._usual, form.guess)

    def _mean_scale(self, model: str) -> float:
        """Return the factor by which the speeds of a model differ from guesses, as far as others tell."""
        guesses = {each.has_servers: each.guess for each in (WITH_SERVERS, WITHOUT_SERVERS)}
        return float(np.exp(np.mean(np.log(self._scales(model, guesses)))))

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
        form = form_of(job)
        guess = _drawn(form, random)
        if known := _of_form(self._known.get(job.model, {}), form):
            return _grid(job, known, guess, random=random)
        guesses = {form.has_servers: guess}
        for other in (WITH_SERVERS, WITHOUT_SERVERS):
            if other is not form and any(_of_form(known, other) for known in self._known.values()):
                guesses[other.has_servers] = _drawn(other, random)
        scale = float(random.choice(self._scales(job.model, guesses)) * np.exp(random.normal(0.0, _STRANGE)))
        return _guessed(job, scale, guess)

    def _scales(self, model: str, guesses: Mapping[bool, _Floats]) -> list[float]:
        """Return the factors by which the speeds of the known models, or of this one if it is known, differ from
        guesses.

        Args:
            model: that nobody has reported in the form that is asked for.
            guesses: coefficients, of the form with servers (True) and without.
        """
        others = [self._known[model]] if model in self._known else self._known.values()
        found = []
        for form in (WITH_SERVERS, WITHOUT_SERVERS):
            each = [known for whole in others if (known := _of_form(whole, form))]
            found += [_scale(form, *_arrays(known)[:2], guesses[form.has_servers]) for known in each]
        return found or [1.0]


def _of_form(known: _Known, form: SpeedForm) -> _Known:
    """Return what is known of jobs with servers, or of those without."""
    return {at: speed for at, speed in known.items() if (at[0] > 0) == form.has_servers}


def _drawn(form: SpeedForm, random: np.random.Generator) -> _Floats:
    """Draw coefficients of a guess."""
    found: _Floats = form.guess * np.exp(random.normal(0.0, _GUESS_SPREAD, len(form.guess)))
    return found


def _guessed(job: Job, scale: float, guess: _Floats) -> Grid:
    """Return the grid of a job of a model that nobody has reported: like the others, so that it goes with them."""
    form = form_of(job)
    return _as_grid(job, scale / (form.terms(form.counts(job.max_servers, job.max_workers)) @ guess))


def _as_grid(job: Job, speeds: _Floats) -> Grid:
    """Return a job's grid, with 0 where it does not run.

    Args:
        job: whose.
        speeds: at `SpeedForm.counts`.
    """
    grid = np.zeros((job.max_servers + 1, job.max_workers + 1))
    grid[job.has_servers :, 1:] = speeds.reshape(-1, job.max_workers)
    return grid


def _arrays(known: _Known) -> tuple[_Floats, _Floats, _Floats]:
    """Return each configuration's servers and workers, (configurations, 2), its speed and that's spread, one each."""
    speeds, spreads = np.array(list(known.values())).T
    return np.array(list(known), dtype=float), speeds, spreads


def _scale(form: SpeedForm, at: _Floats, speeds: _Floats, guess: _Floats) -> float:
    """Return the factor by which speeds differ from a guess."""
    guessed = 1 / (form.terms(at) @ guess)
    return float(np.exp(np.mean(np.log(speeds / guessed))))


def _grid(
    job: Job, known: _Known, guess: _Floats, optimism: float = 0.0, random: np.random.Generator | None = None
) -> Grid:
    """Return the grid of a job of which a speed is known.

    Args:
        job: of which jobs of its model that have servers, or have none, as it does, have told.
        known: of them.
        guess: the coefficients that decide what the reports leave open.
        optimism: standard deviations that are added.
        random: draws from what agrees with the reports; None: what is most likely.
    """
    form = form_of(job)
    at, speeds, spreads = _arrays(known)
    here = form.counts(job.max_servers, job.max_workers)
    coefficients = _fit(form, at, speeds, spreads, guess)
    missed = np.log(speeds * (form.terms(at) @ coefficients))
    covariance = _alike(at, at) + np.diag(spreads**2)
    weights = np.linalg.solve(covariance, _alike(at, here))
    correction = missed @ weights
    if random is None:
        variance = np.maximum(_SMOOTH**2 + _ROUGH**2 - (weights * _alike(at, here)).sum(axis=0), 0.0)
        correction += optimism * np.sqrt(variance)
    else:
        most = np.maximum(_places(at).max(axis=0), _places(here).max(axis=0)) + 1
        strays = _strays(most, random)
        reported = strays[tuple(_places(at).T)] + spreads * random.normal(size=len(at))
        correction += strays[tuple(_places(here).T)] - reported @ weights  # Matheron's rule
    return _as_grid(job, np.exp(correction) / (form.terms(here) @ coefficients))


def _places(at: _Floats) -> NDArray[np.int64]:
    """Return where counts stand in an array that begins with 1 server and 1 worker; no servers are in its first row."""
    found: NDArray[np.int64] = np.maximum(at.astype(int) - 1, 0)
    return found


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
    logs, other_logs = (np.log2(np.maximum(at, 1.0)) for at in (some, others))  # without servers all have the same
    squares = ((logs[:, None] - other_logs) ** 2).sum(axis=-1)
    found: _Floats = _SMOOTH**2 * np.exp(-squares / (2 * _OCTAVES**2)) + _ROUGH**2 * (squares == 0)
    return found


def _fit(form: SpeedForm, at: _Floats, speeds: _Floats, spreads: _Floats, guess: _Floats) -> _Floats:
    """Return coefficients by least squares of the relative error.

    The guess, to scale, decides what the reports leave open. A speed counts the less the further it may be off the
    curve: by what any speed strays from it, and by its own spread.

    Args:
        form: of the curve.
        at: servers and workers, (configurations, 2).
        speeds: their samples a second, (configurations,).
        spreads: see `KnownSpeed`, (configurations,).
        guess: coefficients.
    """
    strays = _SMOOTH**2 + _ROUGH**2
    sure = np.sqrt((strays + _NOISE**2) / (strays + spreads**2))  # 1 of one's own reports
    held = form.terms(form.guess_at)
    beside = _scale(form, at, speeds, guess) / (held @ guess)
    rows = np.vstack([form.terms(at) * (speeds * sure)[:, None], _GUESS_WEIGHT * held * beside[:, None]])
    wanted = np.concatenate([sure, np.full(len(beside), _GUESS_WEIGHT)])
    sizes = np.linalg.norm(rows, axis=0)
    found = lsq_linear(rows / sizes, wanted, bounds=(0, np.inf), method="bvls")  # scipy's nnls may not end
    coefficients: _Floats = np.maximum(found.x, 0.0) / sizes
    return coefficients
