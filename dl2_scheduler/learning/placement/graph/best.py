"""This module keeps those agents that are best on sequences of jobs which nobody learns from."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PlacementPolicy
from dl2_scheduler.sim.placed.scenario import Scenario

_SELECTED = 2_000_000
"""Seed of the first sequence that agents are selected by."""

Agents = TypeVar("Agents", bound=PlacementPolicy)


class AgentsJudge:
    """Compares agents with planners on the same sequences.

    Args:
        scenarios: in each of which they are compared.
        allocation: says how many tasks jobs get.
        planners: whose completion times others are parts of, one for each scenario.
        sequences: of each scenario.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        allocation: AllocationPolicy,
        planners: Sequence[PlacementPolicy],
        sequences: int,
    ):
        self._allocation = allocation
        self._runs = [(scenario, scenario.jobs(_SELECTED + n)) for scenario in scenarios for n in range(sequences)]
        self._planners = self._means([planner for planner in planners for _ in range(sequences)])

    def excess(self, policy: PlacementPolicy) -> float:
        """Return by which part of the planners' mean completion times a policy's lies over them, in the mean."""
        return float((self._means([policy] * len(self._runs)) / self._planners - 1).mean())

    def _means(self, policies: Sequence[PlacementPolicy]) -> Floats:
        runs = zip(self._runs, policies, strict=True)
        return np.array([s.completion_times(self._allocation, policy, jobs).mean() for (s, jobs), policy in runs])


class BestAgents(Generic[Agents]):
    """Keeps the best agents of those that it is offered.

    Args:
        judge: says which are.
        tell: see `learn_agents`.
        keep: see there.

    Attributes:
        policy: the best so far; None: none was offered yet.
    """

    def __init__(self, judge: AgentsJudge, tell: Callable[[int, float], None], keep: Callable[[Agents], None]) -> None:
        self._judge, self._tell, self._keep, self._least = judge, tell, keep, np.inf
        self.policy: Agents | None = None

    def offer(self, policy: Agents, updates: int) -> None:
        """Judge agents, and keep them if they are better than all before.

        Args:
            policy: the agents.
            updates: that they have behind them.
        """
        excess = self._judge.excess(policy)
        if excess < self._least:
            self.policy, self._least = policy, excess
            self._keep(policy)
        self._tell(updates, excess)
