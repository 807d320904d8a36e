"""This module judges placement policies while they learn: by jobs that nobody learns from, beside a planner."""

from collections.abc import Sequence

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.scenario import Scenario

TAUGHT, SELECTED, LEARNT = 1_000_000, 2_000_000, 3_000_000
"""Seeds of the sequences that planners decide about, that policies are selected by, and that rewards come from."""
OF_A_RUN = 1_000_000
"""Sequences at most that a run learns from."""


class PlacementJudge:
    """A `PlacementJudge` compares completion times with a planner's, of the same sequences of jobs.

    Args:
        scenarios: in each of which policies are compared, all of the same cluster and model of speeds.
        planner: whose completion times others are parts of.
        sequences: of each scenario.

    Attributes:
        scenario: the first.
        jobs: of all scenarios' sequences, one scenario after another.
    """

    def __init__(self, scenarios: Sequence[Scenario], planner: PlacementPolicy, sequences: int):
        self.scenario = scenarios[0]
        self.jobs = [scenario.jobs(SELECTED + number) for scenario in scenarios for number in range(sequences)]
        self._planner = np.array(
            [self.scenario.completion_times(FixedDemand(), planner, jobs).mean() for jobs in self.jobs]
        )

    def excess(self, times: Floats) -> float:
        """Return by which part of the planner's mean completion times others lie over them, in the mean.

        Args:
            times: of the jobs, (sequences, jobs).
        """
        return float((times.mean(axis=1) / self._planner - 1).mean())
