"""This module draws the jobs of the placement papers: counts that their owners fix, and lengths."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.jobs import Job

SpeedAlone = Callable[[str, int, int], float]
"""Samples a second of a model with so many workers and servers, alone in the cluster at its best place."""

SHORTEST, LONGEST = 0.5, 2.5
"""Intervals that a job takes alone at its best place: no paper says."""


@dataclass(frozen=True)
class Workload:
    """A `Workload` draws jobs that arrive at the beginnings of intervals.

    Attributes:
        profiles: of the models, of which each job draws one, all alike.
        interval_seconds: length of an interval.
        jobs: how many.
        mean: jobs an interval.
        pattern: "uniform" (each number from none to twice the mean alike) or "poisson".
        most: tasks of a role that an owner asks for: 1 to so many, all alike.
    """

    profiles: Mapping[str, Profile]
    interval_seconds: float = 1200.0
    jobs: int = 60
    mean: float = 3.0
    pattern: str = "uniform"
    most: int = 3

    def draw(self, seed: int, alone: SpeedAlone) -> list[Job]:
        """Return a sequence of jobs.

        Args:
            seed: of the draws.
            alone: by which a length becomes epochs.
        """
        rng = np.random.default_rng(seed)
        names = sorted(self.profiles)
        found = []
        for number, interval in enumerate(self._intervals(rng)):
            model = names[rng.integers(len(names))]
            workers, servers = (int(count) for count in rng.integers(1, self.most + 1, size=2))
            length = float(rng.uniform(SHORTEST, LONGEST)) * self.interval_seconds
            found.append(self._job(number, interval, model, workers, servers, length * alone(model, workers, servers)))
        return found

    def _intervals(self, rng: np.random.Generator) -> Sequence[int]:
        """Return the interval in which each job arrives."""
        counts: list[int] = []
        while sum(counts) < self.jobs:
            most = round(2 * self.mean) + 1
            counts.append(int(rng.integers(most) if self.pattern == "uniform" else rng.poisson(self.mean)))
        return [int(interval) for interval in np.repeat(np.arange(len(counts)), counts)[: self.jobs]]

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
