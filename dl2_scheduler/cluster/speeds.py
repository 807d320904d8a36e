"""This module holds how fast jobs of each model train, by servers and workers."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job

Grid = NDArray[np.float64]
"""Samples a second of all workers together, (servers, workers), both from 0 on; what is not positive does not run.

Row 0 is for jobs without servers, whose workers all-reduce.
"""


class Speeds:
    """`Speeds` tell how fast jobs of each model are trained, for up to `max_servers` and `max_workers`.

    Args:
        grids: the speeds of each model, (servers, workers), in samples a second.
    """

    def __init__(self, grids: Mapping[str, Grid]):
        self.grids = dict(grids)

    @property
    def models(self) -> tuple[str, ...]:
        """Known ones, in alphabetical order."""
        return tuple(sorted(self.grids))

    def grid(self, model: str) -> Grid:
        """Return the speeds of one model, in samples a second, (servers, workers), both from 0 on.

        Raises:
            BadInput: it is unknown.
        """
        try:
            return self.grids[model]
        except KeyError:
            raise BadInput(f"unknown model {model}: the speeds have {', '.join(self.models)}") from None

    def grid_of(self, job: Job) -> Grid:
        """Return a job's samples a second, (servers, workers) from 0 to its maxima; 0 where it does not run.

        Raises:
            BadInput: its model is unknown.
        """
        grid = np.maximum(self.grid(job.model)[: job.max_servers + 1, : job.max_workers + 1], 0.0)
        grid[:, 0] = 0.0
        if job.has_servers:
            grid[0] = 0.0
        return grid

    def of(self, model: str, servers: int, workers: int) -> float:
        """Return how many samples a second a job trains; 0 where it does not run.

        Args:
            model: the type of the job.
            servers: how many it has; 0: its workers all-reduce.
            workers: how many it has.
        """
        return max(0.0, float(self.grid(model)[servers, workers])) if workers else 0.0
