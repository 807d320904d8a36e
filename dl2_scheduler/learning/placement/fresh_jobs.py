"""This module gives clusters in which policies learn their jobs, each cluster those of its own scenario."""

from collections.abc import Sequence

from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.sim.placed.scenario import Scenario


class FreshJobs:
    """A `FreshJobs` gives no sequence of jobs twice.

    Args:
        scenarios: whose jobs come, in turn by the number of the cluster.
        seed: before that of the first sequence; the others follow.
    """

    def __init__(self, scenarios: Sequence[Scenario], seed: int):
        self._scenarios, self._last = scenarios, seed

    def of(self, clusters: Ints) -> list[list[Job]]:
        """Return a new sequence for each of these clusters."""
        first = self._last + 1
        self._last += len(clusters)
        turns = len(self._scenarios)
        return [self._scenarios[cluster % turns].jobs(first + row) for row, cluster in enumerate(clusters)]
