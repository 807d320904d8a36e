"""This module says how jobs' true speeds deviate from their types' (DL2, section 6.4, figure 13)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job


@dataclass(frozen=True)
class Variation:
    """Every job trains faster or slower than its model does, by a factor of its own that stays as long as it runs.

    Policies see it in what jobs report, nowhere else; those that know true speeds know the models' alone.

    Attributes:
        part: x: factors are drawn evenly from [1 - x, 1 + x].
        seed: of the factors.

    Raises:
        BadInput: one of them is out of range.
    """

    part: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.part < 1:
            raise BadInput(f"speed variation {self.part}: give a part, from 0 to less than 1")
        if self.seed < 0:
            raise BadInput(f"seed {self.seed} of the speed variation: give a whole number from 0 on")

    def of_sequence(self, number: int) -> "Variation":
        """Return the variation of another sequence of jobs: other factors, the same part."""
        return replace(self, seed=self.seed + number)

    def factors(self, jobs: int) -> NDArray[np.float64]:
        """Return the factor of each job, by arrival, then id, (jobs,)."""
        return np.random.default_rng(self.seed).uniform(1 - self.part, 1 + self.part, size=jobs)

    def as_work(self, jobs: Sequence[Job]) -> list[Job]:
        """Return jobs that take as long at their models' speeds as `jobs` do at their own: their samples differ."""
        ordered = sorted(jobs, key=by_arrival)
        return [
            replace(job, samples_per_epoch=job.samples_per_epoch / factor)
            for job, factor in zip(ordered, self.factors(len(ordered)).tolist(), strict=True)
        ]


NO_VARIATION = Variation()


def by_arrival(job: Job) -> tuple[float, int | str]:
    """Return the key of the order in which the simulator has jobs."""
    return job.arrival, job.id
