"""This module has what a policy knows of speeds: the truth, or what it has fitted to the reports of jobs."""

from collections.abc import Iterable
from typing import Protocol

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import SpeedReport
from dl2_scheduler.cluster.speeds import Grid, Speeds


class SpeedEstimates(Protocol):
    """These are the speeds of models, in samples a second."""

    def observe(self, reports: Iterable[SpeedReport]) -> None:
        """Learn from what jobs measured."""

    def grid(self, job: Job) -> Grid:
        """Return a job's samples a second, by (servers, workers) from 0 up to its maxima; 0: it does not run."""


class TrueSpeeds:
    """These speeds are true ones, which no real scheduler has.

    Args:
        speeds: the simulator's.
    """

    def __init__(self, speeds: Speeds):
        self._speeds = speeds
        self._grids: dict[tuple[str, int, int], Grid] = {}

    def observe(self, reports: Iterable[SpeedReport]) -> None:
        """See `SpeedEstimates.observe`: there is nothing to learn."""

    def grid(self, job: Job) -> Grid:
        """See `SpeedEstimates.grid`."""
        key = job.model, job.max_servers, job.max_workers
        if key not in self._grids:
            self._grids[key] = self._speeds.grid_of(job)
        return self._grids[key]
