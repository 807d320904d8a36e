"""This module draws the jobs of the placement papers: counts that their owners fix, and lengths."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.sim.arrivals import Pattern, arrival_times
from dl2_scheduler.sim.simulator import MOST_SLOTS

SpeedAlone = Callable[[str, int, int], float]
"""Samples a second of a model with so many workers and servers, alone in the cluster at its best place."""

SHORTEST, LONGEST = 0.5, 2.5
"""Intervals that a job takes alone at its best place: no paper says."""
_WHOLE = 1e-9  # a product may miss the whole number that it means by rounding
_MOST_INTERVALS = MOST_SLOTS // 2
"""Until the last job comes, on average: the simulation goes on after that."""


def check_load(load: float, jobs: int, part: float = 1.0) -> None:
    """Refuse jobs that would come too late for any simulation.

    Args:
        load: jobs an interval.
        jobs: of a sequence.
        part: of the load that comes for it.

    Raises:
        BadInput: with the least load that will do.
    """
    if not 0 < load < math.inf:
        raise BadInput(f"{load} jobs an interval: give a positive number")
    if jobs > load * part * _MOST_INTERVALS * (1 + _WHOLE):
        least = math.ceil(1e6 * jobs / part / _MOST_INTERVALS) / 1e6
        raise BadInput(
            f"{load:g} jobs an interval: {jobs} jobs come in {jobs / load / part:.3g} intervals, and a simulation has "
            f"at most {MOST_SLOTS:,}: give {least:g} or more"
        )


@dataclass(frozen=True)
class Workload:
    """A `Workload` draws jobs that arrive at the beginnings of intervals.

    Attributes:
        profiles: of the models, of which each job draws one, all alike.
        interval_seconds: length of an interval.
        jobs: how many, of each partition.
        mean: jobs an interval, of each partition.
        pattern: "uniform" (each number from none to twice the mean alike; where that is between two whole numbers the
            last is one or the other), "poisson" or "google" (see `arrivals`).
        most: tasks of a role that an owner asks for: 1 to so many, all alike.
        partitions: of the cluster, each with jobs of its own.
        lengths: the shortest and the longest time that a job takes alone at its best place, in intervals, all alike.

    Raises:
        BadInput: jobs would come too late for any simulation, or never; or the pattern is another.
    """

    profiles: Mapping[str, Profile]
    interval_seconds: float = 1200.0
    jobs: int = 60
    mean: float = 3.0
    pattern: str = "uniform"
    most: int = 3
    partitions: int = 1
    lengths: tuple[float, float] = (SHORTEST, LONGEST)

    def __post_init__(self) -> None:
        if self.pattern not in set(Pattern):
            raise BadInput(f"unknown pattern {self.pattern}: give one of {', '.join(Pattern)}")
        check_load(self.mean, self.jobs)

    def draw(self, seed: int, alone: SpeedAlone) -> list[Job]:
        """Return a sequence of jobs.

        Args:
            seed: of the draws.
            alone: by which a length becomes epochs.
        """
        rng = np.random.default_rng(seed)
        drawn = [
            self._of_partition(each, alone) for each in ([rng] if self.partitions == 1 else rng.spawn(self.partitions))
        ]
        jobs = [replace(job, partition=number) for number, part in enumerate(drawn) for job in part]
        jobs.sort(key=attrgetter("arrival"))
        return [replace(job, id=number) for number, job in enumerate(jobs)]

    def _of_partition(self, rng: np.random.Generator, alone: SpeedAlone) -> Iterator[Job]:
        """Yield the jobs of a partition by arrival."""
        names = sorted(self.profiles)
        for number, interval in enumerate(self._intervals(rng)):
            model = names[rng.integers(len(names))]
            workers, servers = (int(count) for count in rng.integers(1, self.most + 1, size=2))
            length = float(rng.uniform(*self.lengths)) * self.interval_seconds
            yield self._job(number, interval, model, workers, servers, length * alone(model, workers, servers))

    def _intervals(self, rng: np.random.Generator) -> Sequence[int]:
        """Return the interval in which each job arrives."""
        if self.pattern == "google":
            times = arrival_times(Pattern.GOOGLE, rng, self.jobs, self.interval_seconds, self.mean)
            return [round(time / self.interval_seconds) for time in times]
        draw = self._uniform if self.pattern == Pattern.UNIFORM else self._poisson
        found: list[int] = []
        interval = 0
        while len(found) < self.jobs:
            found += [interval] * draw(rng)
            interval += 1
        return found[: self.jobs]

    def _poisson(self, rng: np.random.Generator) -> int:
        return int(rng.poisson(self.mean))

    def _uniform(self, rng: np.random.Generator) -> int:
        """Return a number of jobs from none to twice the mean, or to the whole numbers about it, so that it is kept."""
        most = round(2 * self.mean)
        if abs(2 * self.mean - most) > _WHOLE:
            most = int(2 * self.mean + rng.random())
        return int(rng.integers(most + 1))

    def _job(self, number: int, interval: int, model: str, workers: int, servers: int, samples: float) -> Job:
        profile = self.profiles[model]
        return Job(
            id=number,
            arrival=interval * self.interval_seconds,
            model=model,
            epochs=samples / profile.samples_per_epoch,
            samples_per_epoch=profile.samples_per_epoch,
            worker=profile.worker,
            server=profile.server,
            max_workers=workers,
            max_servers=servers,
            min_workers=workers,
            min_servers=servers,
        )
