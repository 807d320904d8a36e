"""This module makes a learnt placement policy: it imitates a planner, learns from rewards, and keeps the best.

All of it happens in simulated clusters with the speeds of a fitted model: the truth is not to be had, as on a live
cluster.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import torch

from dl2_scheduler.learning.placement.branching import BranchSettings, Trunk
from dl2_scheduler.learning.placement.imitation import Choices, PlacerNet, fit_choices
from dl2_scheduler.learning.placement.judging import LEARNT, OF_A_RUN, PlacementJudge
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings, improve
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.sim.placed.scenario import Scenario

_AVERAGED = 0.05
"""Part that an update has in the weights that are judged and kept: single updates differ by more than they gain."""


@dataclass(frozen=True)
class PlacerSettings:
    """These `PlacerSettings` say how a placement policy is made.

    Attributes:
        epochs: passes over a planner's choices at the start.
        updates: from rewards.
        judged_every: updates between two judgements.
        branching: finds out what choices are worth.
        gradient: of the updates.
    """

    epochs: int = 16
    updates: int = 300
    judged_every: int = 10
    branching: BranchSettings = field(default=BranchSettings())
    gradient: GradientSettings = field(default=GradientSettings(batch=1024, rate=1e-3))


def learn_placer(
    scenarios: Sequence[Scenario],
    lessons: Choices | None,
    judge: PlacementJudge,
    settings: PlacerSettings = PlacerSettings(),
    seed: int = 0,
    tell: Callable[[int, float], None] = lambda *_: None,
    keep: Callable[[LearntPlacer], None] = lambda _: None,
) -> LearntPlacer:
    """Make a policy, and return the one that was best on sequences which nobody learnt from.

    Args:
        scenarios: in which it is to be good, all of the same cluster and fitted model; one for each load, say. Jobs
            get as many tasks as they ask for.
        lessons: a planner's choices, which it imitates first; None: it begins from nothing.
        judge: selects the best.
        settings: of the run.
        seed: of everything but the lessons.
        tell: gets at each judgement how many updates there were, and by which part of the planner's completion times
            the policy's lie over them.
        keep: gets each policy that is the best so far, so that an interrupted run leaves something.
    """
    torch.manual_seed(seed)
    net = PlacerNet(len(scenarios[0].profiles))
    if lessons is not None:
        fit_choices(net, lessons, settings.epochs, seed)
    best = net.policy()
    least = _excess(judge, best)
    tell(0, least)
    keep(best)
    averaged = deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.gradient.rate)
    trunk = Trunk(scenarios, settings.branching, LEARNT + seed * OF_A_RUN)
    for update in range(settings.updates):
        for group in optimizer.param_groups:
            group["lr"] = settings.gradient.rate * (1 - 0.95 * update / settings.updates)
        improve(net, optimizer, trunk.grow(net.policy()), settings.gradient, update)
        with torch.no_grad():
            for mean, weight in zip(averaged.parameters(), net.parameters(), strict=True):
                mean.lerp_(weight, _AVERAGED)
        if (update + 1) % settings.judged_every == 0:
            policy = averaged.policy()
            excess = _excess(judge, policy)
            tell(update + 1, excess)
            if excess < least:
                least, best = excess, policy
                keep(best)
    return best


def _excess(judge: PlacementJudge, policy: LearntPlacer) -> float:
    lockstep = Lockstep.begun(judge.scenario, judge.jobs)
    lockstep.run(lambda groups, job, allowed, _: policy.best_of(groups, job, allowed))
    return judge.excess(lockstep.times())
