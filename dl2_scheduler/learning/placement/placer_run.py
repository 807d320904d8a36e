"""This module makes a learnt placement policy: it imitates a planner, learns from rewards, and keeps the best.

All of it happens in simulated clusters with the speeds of a fitted model: the truth is not to be had, as on a live
cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.learning.placement.branching import BranchSettings, Trunk
from dl2_scheduler.learning.placement.imitation import Asking, Choices, PlacerNet, fit_choices
from dl2_scheduler.learning.placement.lockstep_tasks import Lockstep
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings, improve
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.scenario import Scenario

_TAUGHT, _SELECTED, _LEARNT = 1_000_000, 2_000_000, 3_000_000
"""Seeds of the sequences that the planner decides about, that policies are selected by, and that rewards come from."""
_OF_A_RUN = 1_000_000
"""Sequences at most that a run learns from."""


@dataclass(frozen=True)
class PlacerSettings:
    """These `PlacerSettings` say how a placement policy is made.

    Attributes:
        rounds: of imitation; in the first the planner decides, in the others the policy. 0: there is none.
        taught: sequences of each scenario in a round.
        epochs: passes over all choices so far in a round.
        updates: from rewards.
        judged_every: updates between two judgements.
        selected: sequences of each scenario by which policies are judged.
        branching: finds out what choices are worth.
        gradient: of the updates.
    """

    rounds: int = 1
    taught: int = 20
    epochs: int = 16
    updates: int = 300
    judged_every: int = 10
    selected: int = 20
    branching: BranchSettings = field(default=BranchSettings())
    gradient: GradientSettings = field(default=GradientSettings(batch=1024, rate=1e-3))


def learn_placer(
    scenarios: Sequence[Scenario],
    planner: PlacementPolicy,
    settings: PlacerSettings = PlacerSettings(),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> LearntPlacer:
    """Make a policy, and return the one that was best on sequences which nobody learnt from.

    Args:
        scenarios: in which it is to be good, all of the same cluster and fitted model; one for each load, say. Jobs
            get as many tasks as they ask for.
        planner: is imitated, and what policies are compared with.
        settings: of the run.
        seed: of everything.
        tell: gets a line for each judgement.
    """
    torch.manual_seed(seed)
    net = PlacerNet(len(scenarios[0].profiles))
    judge = _Judge(scenarios, planner, settings.selected)
    _imitate(net, scenarios, planner, settings, seed)
    best = net.policy()
    least = judge.excess(best)
    tell(f"at the start: {least:+.1%}")
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.gradient.rate)
    trunk = Trunk(scenarios, settings.branching, _LEARNT + seed * _OF_A_RUN)
    for update in range(settings.updates):
        for group in optimizer.param_groups:
            group["lr"] = settings.gradient.rate * (1 - 0.95 * update / settings.updates)
        improve(net, optimizer, trunk.grow(net.policy()), settings.gradient, update)
        if (update + 1) % settings.judged_every == 0:
            policy = net.policy()
            excess = judge.excess(policy)
            tell(f"{update + 1} updates: {excess:+.1%}")
            if excess < least:
                least, best = excess, policy
    return best


def _imitate(
    net: PlacerNet, scenarios: Sequence[Scenario], planner: PlacementPolicy, settings: PlacerSettings, seed: int
) -> None:
    """Let a network imitate a planner; the arguments are those of `learn_placer`."""
    choices = Choices()
    for turn in range(settings.rounds):
        decides = planner if turn == 0 else net.policy()
        for number in range(settings.taught):
            for scenario in scenarios:
                jobs = scenario.jobs(_TAUGHT + (seed * settings.rounds + turn) * settings.taught + number)
                scenario.completion_times(FixedDemand(), Asking(decides, planner, choices), jobs)
        fit_choices(net, choices, settings.epochs, seed)


class _Judge:
    """Compares policies with a planner on the same sequences.

    Args:
        scenarios: in each of which they are compared.
        planner: whose completion times others are parts of.
        sequences: of each scenario.
    """

    def __init__(self, scenarios: Sequence[Scenario], planner: PlacementPolicy, sequences: int):
        self._scenario, count = scenarios[0], range(sequences)
        self._jobs = [scenario.jobs(_SELECTED + number) for scenario in scenarios for number in count]
        self._planner = np.array(
            [self._scenario.completion_times(FixedDemand(), planner, jobs).mean() for jobs in self._jobs]
        )

    def excess(self, policy: LearntPlacer) -> float:
        """Return by which part of the planner's mean completion time a policy's lies over it, in the mean."""
        lockstep = Lockstep.begun(self._scenario, self._jobs)
        lockstep.run(lambda groups, job, allowed, _: policy.best_of(groups, job, allowed))
        means: Floats = lockstep.times().mean(axis=1)
        return float((means / self._planner - 1).mean())
