"""This module draws one world in which a live cluster's future can be played, from what its history has told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from dl2_scheduler.cluster.free_resources import which_fit
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.ranges import MOST_EPOCHS
from dl2_scheduler.cluster.snapshot import LEAST_REMAINING, JobState, Snapshot
from dl2_scheduler.world_model.known_jobs import KnownJob
from dl2_scheduler.world_model.observed import ObservedCluster

HORIZON = 300
"""Slots of a simulated future; what has not come about by then has no forecast."""

_LEAST_JOBS = 10  # that have to have come before others are expected
_IN_A_ROW = 8  # jobs that are drawn together, as they came
_STRANGE = 0.2  # how far the logarithm of a job's speed strays from its type's, where no job has told
_GUESSED = 0.7  # how far the logarithm of its samples does, where no job of its type has told


@dataclass(frozen=True)
class DrawnJob:
    """A `DrawnJob` is a job of a drawn world.

    Attributes:
        job: as a policy sees it.
        factor: its speed over its type's.
        epochs: those that it trains in fact.
        saves: whether it can be suspended and go on later.
    """

    job: Job
    factor: float
    epochs: float
    saves: bool


@dataclass(frozen=True)
class DrawnWorld:
    """A `DrawnWorld` says what the jobs of a future are.

    Attributes:
        present: of the jobs that are there and fit some node, in the order of the snapshot.
        later: of those that come, by arrival, in seconds from the present on.
    """

    present: tuple[DrawnJob, ...]
    later: tuple[DrawnJob, ...]


class WorldDraws:
    """A `WorldDraws` makes random worlds for one present.

    Whatever its nodes are, the same seed draws the same for each job.

    Args:
        observed: what the history has told.
        present: the snapshot, in which each job has its samples; jobs that fit no node are not in the worlds.
    """

    def __init__(self, observed: ObservedCluster, present: Snapshot):
        self._observed, self._present = observed, present
        self._factors = observed.jobs.log_factors(observed.fitted)
        self._needed = np.array(observed.jobs.needed())
        self._came = observed.jobs.came(observed.now)
        self._came_fit = list(which_fit((known.job for _, known in self._came), present.nodes))
        self._fits = list(which_fit((state.job for state in present.jobs), present.nodes))

    def draw(self, seed: Sequence[int]) -> DrawnWorld:
        """Draw a world; one job more at the end of the present ones changes nothing else of it."""
        of_present, of_later = np.random.default_rng(seed).spawn(2)
        present = [self._present_job(state, of_present) for state in self._present.jobs]
        return DrawnWorld(tuple(compress(present, self._fits)), tuple(self._later(of_later)))

    def _present_job(self, state: JobState, random: np.random.Generator) -> DrawnJob:
        observed = self._observed.jobs.by_key.get((state.job.id, state.job.arrival))
        factor = self._factor(observed, random)
        has_told = observed is not None and observed.job.samples_known
        if not (has_told or state.job.model in self._observed.samples):
            factor *= float(np.exp(random.normal(0.0, _GUESSED)))
        return DrawnJob(state.job, factor, self._epochs(state.job.estimate, state.epochs_done, random), state.saves)

    def _factor(self, observed: KnownJob | None, random: np.random.Generator) -> float:
        """Return a job's speed over its type's: its own where it has told, else that of some job."""
        own = None if observed is None else observed.log_factor(self._observed.fitted)
        if own is None:
            own = random.choice(self._factors) if self._factors else random.normal(0.0, _STRANGE)
        return float(np.exp(own))

    def _epochs(self, estimate: float, done: float, random: np.random.Generator) -> float:
        """Return what a job trains: its owner is as wrong as owners were whose jobs trained as much."""
        possible = self._needed[self._needed * estimate > done]
        if len(possible):
            return min(float(random.choice(possible)) * estimate, MOST_EPOCHS)  # no simulation takes more
        return max(estimate, done + LEAST_REMAINING * estimate)

    def _later(self, random: np.random.Generator) -> Iterator[DrawnJob]:
        """Yield jobs that come as earlier ones did, some in a row; no more than have come before."""
        if len(self._came) < _LEAST_JOBS:
            return
        horizon = HORIZON * self._present.slot_seconds
        time, at = 0.0, 0
        for number in range(len(self._came)):
            if number % _IN_A_ROW == 0:
                at = int(random.integers(len(self._came)))
            like = (at + number) % len(self._came)
            gap, _ = self._came[like]  # to the next one, which comes then
            after = (like + 1) % len(self._came)
            observed = self._came[after][1]
            time += gap
            if time > horizon:
                return
            drawn = self._later_job(number, time, observed, random)
            if observed.job.samples_known and self._came_fit[after]:
                yield drawn

    def _later_job(self, number: int, time: float, like: KnownJob, random: np.random.Generator) -> DrawnJob:
        epochs = self._epochs(like.job.estimate, 0.0, random)
        name = f"+{number:06}"  # no job's name begins so; simulations order those that come at once by it
        job = replace(like.job, id=name, arrival=time, epochs=epochs, epochs_estimate=like.job.estimate)
        return DrawnJob(job, self._factor(like, random), epochs, like.saves)
