"""This module makes a learnt placement policy: it imitates a planner, learns from rewards, and keeps the best.

All of it happens in simulated clusters whose speeds the caller chooses: those of a fitted model, where the truth is not
to be had, as on a live cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PlacementPolicy
from dl2_scheduler.learning.placement.imitation import Asking, Choices, PlacerNet, fit_choices
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings, gather, improve
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.sim.placed.scenario import Scenario

_TAUGHT, _SELECTED, _LEARNT = 1_000_000, 2_000_000, 3_000_000
"""Seeds of the sequences that the planner decides about, that policies are selected by, and that rewards come from."""


@dataclass(frozen=True)
class PlacerSettings:
    """These `PlacerSettings` say how a placement policy is made.

    Attributes:
        rounds: of imitation; in the first the planner decides, in the others the policy.
        taught: sequences of each scenario in a round.
        epochs: passes over all choices so far in a round.
        updates: from rewards.
        judged_every: updates between two judgements.
        selected: sequences of each scenario by which policies are judged.
        gradient: of the updates.
    """

    rounds: int = 2
    taught: int = 40
    epochs: int = 16
    updates: int = 300
    judged_every: int = 10
    selected: int = 10
    gradient: GradientSettings = field(default=GradientSettings(sequences=6, episodes=8))


def learn_placer(
    scenarios: Sequence[Scenario],
    allocation: AllocationPolicy,
    planner: PlacementPolicy,
    settings: PlacerSettings = PlacerSettings(),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> LearntPlacer:
    """Make a policy, and return the one that was best on sequences which nobody learnt from.

    Args:
        scenarios: in which it is to be good, with the same models; one for each load, say.
        allocation: says how many tasks jobs get.
        planner: is imitated.
        settings: of the run.
        seed: of everything.
        tell: gets a line for each judgement.
    """
    torch.manual_seed(seed)
    net = PlacerNet(len(scenarios[0].profiles))
    judge = _Judge(scenarios, allocation, planner, settings.selected)
    _imitate(net, scenarios, allocation, planner, settings, seed)
    best = net.policy()
    least = judge.excess(best)
    tell(f"imitated: {least:+.1%}")
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.gradient.rate)
    for update in range(settings.updates):
        for group in optimizer.param_groups:
            group["lr"] = settings.gradient.rate * (1 - 0.9 * update / settings.updates)
        number = _LEARNT + seed * settings.updates + update
        improve(
            net,
            optimizer,
            gather(scenarios, allocation, net.policy(), settings.gradient, number),
            settings.gradient,
            number,
        )
        if (update + 1) % settings.judged_every == 0:
            policy = net.policy()
            excess = judge.excess(policy)
            tell(f"{update + 1} updates: {excess:+.1%}")
            if excess < least:
                least, best = excess, policy
    return best


def _imitate(
    net: PlacerNet,
    scenarios: Sequence[Scenario],
    allocation: AllocationPolicy,
    planner: PlacementPolicy,
    settings: PlacerSettings,
    seed: int,
) -> None:
    """Let a network imitate a planner; the arguments are those of `learn_placer`."""
    choices = Choices()
    for turn in range(settings.rounds):
        decides = planner if turn == 0 else net.policy()
        for number in range(settings.taught):
            for scenario in scenarios:
                jobs = scenario.jobs(_TAUGHT + (seed * settings.rounds + turn) * settings.taught + number)
                scenario.completion_times(allocation, Asking(decides, planner, choices), jobs)
        fit_choices(net, choices, settings.epochs, seed)


class _Judge:
    """Compares policies with a planner on the same sequences.

    Args:
        scenarios: in each of which they are compared.
        allocation: says how many tasks jobs get.
        planner: whose completion times others are parts of.
        sequences: of each scenario.
    """

    def __init__(
        self, scenarios: Sequence[Scenario], allocation: AllocationPolicy, planner: PlacementPolicy, sequences: int
    ):
        self._allocation = allocation
        self._runs = [(scenario, scenario.jobs(_SELECTED + n)) for scenario in scenarios for n in range(sequences)]
        self._planner = self._means(planner)

    def excess(self, policy: PlacementPolicy) -> float:
        """Return by which part of the planner's mean completion time a policy's lies over it, in the mean."""
        return float((self._means(policy) / self._planner - 1).mean())

    def _means(self, policy: PlacementPolicy) -> Floats:
        return np.array([s.completion_times(self._allocation, policy, jobs).mean() for s, jobs in self._runs])
