"""A course says how fast a job is in each configuration over the whole of its work.

The noise of gradients grows while a model is trained, and so does what large batches gain: a job for which eight GPUs
are no better than one in its first minute may be six times as fast on them in its fifth.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.sia_simulator.choice import Floats

_SLOWEST = 1e-9


@dataclass(frozen=True)
class WorkCourse:
    """A course holds the speeds of a job at points of its work.

    Attributes:
        total: work of the whole job.
        work: done at each point, from 0 on, below `total`; (points,).
        speeds: work a second from each point to the next, in each configuration; (points, configurations).
    """

    total: float
    work: Floats
    speeds: Floats

    @cached_property
    def _ends(self) -> Floats:
        return np.append(self.work, self.total)

    @cached_property
    def _seconds(self) -> Floats:
        """Seconds from the beginning to each point and to the end; (points + 1, configurations)."""
        steps = np.diff(self._ends)[:, None] / np.maximum(self.speeds, _SLOWEST)
        return np.vstack([np.zeros(self.speeds.shape[1]), np.cumsum(steps, axis=0)])

    def seconds_left(self, done: float) -> Floats:
        """Return the seconds that a job takes to its end in each configuration.

        Args:
            done: work that it has done.
        """
        return np.asarray(self._seconds[-1] - self._at(done))

    def mean_speeds(self, done: float, delays: Floats, horizon: float) -> Floats:
        """Return the work a second until the horizon, or until the job's end if that comes first.

        Args:
            done: work that the job has done.
            delays: seconds before it goes on, in each configuration.
            horizon: seconds from now.
        """
        at, left = self._at(done), self.total - done
        running = np.clip(horizon - delays, 0.0, None)
        reached = np.array([
            np.interp(then, seconds, self._ends) for then, seconds in zip(at + running, self._seconds.T, strict=True)
        ])  # fmt: skip
        seconds = np.minimum(delays + self._seconds[-1] - at, np.maximum(horizon, delays))
        return np.asarray(np.minimum(reached - done, left) / np.maximum(seconds, 1.0))

    def _at(self, done: float) -> Floats:
        """Return the seconds from the beginning to a point of the work, in each configuration."""
        return np.array([np.interp(done, self._ends, seconds) for seconds in self._seconds.T])
