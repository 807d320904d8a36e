"""This module corrects forecasts by how earlier ones did. It is pure.

It is split conformal prediction: the score of an earlier forecast says how many of its own deviations its logarithm was
off. The quantiles of such scores, put back, make intervals that hold as often as they say, however wrong the simulated
futures are, as long as forecasts go wrong as they did before. (Vovk, Gammerman and Shafer, Algorithmic Learning in a
Random World, 2005; Lei et al., Distribution-Free Predictive Inference for Regression, 2018.)

What is alike by chance is a job, not a forecast: one that waits for long has many, all off by about the same. So ranks
are those of jobs. (Lee, Barber and Willett, Distribution-Free Inference with Hierarchical Data, 2023.)
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.forecast import ExpectedTime

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
"""The levels of what people are told: 80% lie between the outer ones."""

MOST_SCORES = 4000
"""That count, the latest: how forecasts go wrong changes with jobs and policies."""

_ALIKE, _LEAST_ALIKE = 0.25, 300  # part of the scores that are taken for alike, and how many at least
_SURENESS = 2.0  # how much it counts beside the reach
_LEAST_DEVIATION, _WHOLE = 0.1, 16  # of the logarithm: what so many simulated futures do not know; fewer know less
_FURTHEST, _MOST_LOGARITHM = 100 * 365 * 86_400.0, 100.0  # seconds, as calendars end; and what has an exponential
_FEWEST_JOBS = 9.0  # that tell an interval of 80%: of them and one more, one in ten is above all the others
_GUESSED = tuple(2 * NormalDist().inv_cdf((number + 0.5) / 20) for number in range(20))  # scores of those that lack


@dataclass(frozen=True)
class RawForecast:
    """A `RawForecast` is what an ensemble of futures says about one event.

    Attributes:
        seconds: until it comes about, the ensemble's median.
        deviation: of the logarithm of these seconds in the ensemble; of few futures it is larger than they show.
        slot_seconds: the length of a slot, below which differences count less.
    """

    seconds: float
    deviation: float
    slot_seconds: float

    @classmethod
    def of(cls, seconds: Iterable[float], horizon: float, slot_seconds: float) -> "RawForecast | None":
        """Return what the futures say; None: it comes about in fewer than half of them.

        Args:
            seconds: until the event, in each future; infinite: not within the horizon.
            horizon: in seconds.
            slot_seconds: the length of a slot.
        """
        found = np.array(list(seconds))
        if not len(found) or np.isfinite(found).mean() <= MIDDLE:
            return None
        logarithms = np.log(np.minimum(found, horizon) + slot_seconds)
        middle = float(np.exp(np.median(logarithms))) - slot_seconds
        unknown = _LEAST_DEVIATION * math.sqrt(max(_WHOLE / len(found) - 1, 0.0))  # two that agree are not sure
        return cls(max(middle, 0.0), math.hypot(float(logarithms.std()), unknown), slot_seconds)

    @property
    def likeness(self) -> tuple[float, float]:
        """The reach into the future and the sureness: forecasts that are near in both are alike."""
        return math.log(self.seconds / self.slot_seconds + 1), _SURENESS * math.log(self.scale)

    @property
    def scale(self) -> float:
        """The difference of logarithms that makes a score of 1."""
        return math.hypot(self.deviation, _LEAST_DEVIATION)

    def score(self, seconds: float) -> float:
        """Return how far off it was, in its own deviations, of what came about after so many seconds."""
        off = math.log((max(seconds, 0.0) + self.slot_seconds) / (self.seconds + self.slot_seconds))
        return off / self.scale

    def with_score(self, score: float) -> float:
        """Return the seconds after which an event would have this score."""
        logarithm = min(score * self.scale, _MOST_LOGARITHM)
        seconds = (self.seconds + self.slot_seconds) * math.exp(logarithm) - self.slot_seconds
        return min(max(0.0, seconds), _FURTHEST)


class Calibration:
    """A `Calibration` knows the scores of earlier forecasts of one kind.

    A forecast is corrected by those that were alike: they reached about as far into the future, and were about as sure.
    Near ones go wrong otherwise than far ones, and those of new jobs otherwise than those of jobs that have run. Where
    all that are known are of too few jobs, guessed scores stand for the jobs that lack.

    Args:
        scores: of earlier forecasts, each with what was said, those of one job together, oldest first.
    """

    def __init__(self, scores: Iterable[Sequence[tuple[RawForecast, float]]] = ()):
        self._ring = np.empty((MOST_SCORES, 4))  # of each what it is like, its score, and the job's number
        self._seen, self._jobs = 0, 0
        for of_job in scores:
            self.observe(of_job)

    def __len__(self) -> int:
        return min(self._seen, MOST_SCORES)

    @property
    def scores(self) -> list[float]:
        """The scores that are known, in no order."""
        found: list[float] = self._ring[: len(self), 2].tolist()
        return found

    def observe(self, of_job: Iterable[tuple[RawForecast, float]]) -> None:
        """Take the scores of a job whose forecasts have come true.

        Args:
            of_job: each forecast, with its `RawForecast.score`.
        """
        self._jobs += 1
        for raw, score in of_job:
            self._ring[self._seen % MOST_SCORES] = (*raw.likeness, score, self._jobs)
            self._seen += 1

    def seconds(self, raw: RawForecast, levels: Iterable[float]) -> list[float]:
        """Return the seconds before which an event comes about with these chances."""
        alike, asked = self._alike(raw), np.array(list(levels))
        jobs = _effective_jobs(alike[:, 3])
        scores, weights = alike[:, 2], np.full(len(alike), jobs / max(len(alike), 1))
        if (lacking := _FEWEST_JOBS - jobs) > 0:
            scores = np.append(scores, _GUESSED)
            weights = np.append(weights, np.full(len(_GUESSED), lacking / len(_GUESSED)))
        order = np.argsort(scores)
        below = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
        # The one that is forecast may be beyond all that are known: quantiles are those of one job more than these.
        ranks = asked + (asked - MIDDLE) * jobs / weights.sum() ** 2
        return [raw.with_score(float(score)) for score in np.interp(ranks, below, scores[order])]

    def _alike(self, raw: RawForecast) -> NDArray[np.float64]:
        known = self._ring[: len(self)]
        count = max(_LEAST_ALIKE, int(len(known) * _ALIKE))
        if len(known) <= count:
            return known
        far = ((known[:, :2] - raw.likeness) ** 2).sum(axis=1)
        alike: NDArray[np.float64] = known[np.argpartition(far, count - 1)[:count]]
        return alike

    def expected(self, raw: RawForecast, now: float) -> ExpectedTime:
        """Return when the event comes about; the interval is of whole seconds.

        Args:
            raw: what the ensemble says.
            now: unix seconds, from which it counts.
        """
        low, middle, high = self.seconds(raw, (LOW, MIDDLE, HIGH))
        return ExpectedTime(now + middle, math.floor(now + low), math.ceil(now + high))


def _effective_jobs(numbers: NDArray[np.float64]) -> float:
    """Return how many jobs with equally many scores would tell as much as those whose scores these are (Kish, 1965).

    Who looks at a forecast rather sees one of a job that has many. So scores count as they are, and a job with many is
    not weighed down to one with few; but jobs with few do not make up for it that most scores are of one job.

    Args:
        numbers: of each score the number of its job.
    """
    _, counts = np.unique(numbers, return_counts=True)
    return float(counts.sum() ** 2 / (counts**2).sum()) if len(counts) else 0.0
