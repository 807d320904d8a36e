"""This module lets the learnt placement policy learn from what its choices were worth: PPO (Schulman et al., 2017).

What a choice is worth, `branching` finds out: an interval costs the time that jobs spend in the system in it, so that
an episode's costs sum up to the sum of its jobs' completion times. (Harmony's own reward, each job's part of its
training, sums up to the number of jobs whatever the policy does: only discounting makes speed pay there.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.learning.placement.imitation import PlacerNet


@dataclass(frozen=True)
class GradientSettings:
    """These `GradientSettings` say how a policy learns from rewards.

    Attributes:
        sequences: of jobs in an update, where whole episodes are compared.
        episodes: of each sequence.
        discount: of an interval's cost for decisions of the interval before, there.
        clip: by which an update may change the probability of a choice, as a part.
        passes: over the choices in an update.
        batch: choices of a step.
        rate: of Adam at the start; it falls to a tenth.
        entropy: weight of the choices' entropy.
    """

    sequences: int = 8
    episodes: int = 8
    discount: float = 0.9
    clip: float = 0.2
    passes: int = 3
    batch: int = 2048
    rate: float = 5e-4
    entropy: float = 0.003


@dataclass(frozen=True)
class PlacementExperience:
    """A `PlacementExperience` is what choices were made of, and what they were worth; rows are choices.

    Attributes:
        groups: see `PlacerInputs`, (choices, groups, group_width).
        job: see there, (choices, job_width).
        allowed: see there, (choices, groups + 1).
        chosen: (choices,).
        logs: of the probabilities when they were drawn, (choices,).
        worth: how much less time jobs spent in the system afterwards than after other choices in the same state, in
            deviations of these, (choices,).
    """

    groups: Tensor
    job: Tensor
    allowed: Tensor
    chosen: Tensor
    logs: Tensor
    worth: Tensor


def costs(jobs: Sequence[Job], times: Floats, interval_seconds: float) -> Floats:
    """Return the time that all jobs spend in the system in each interval, in intervals, (intervals,).

    Args:
        jobs: of an episode, by arrival.
        times: from each arrival to the end, in intervals.
        interval_seconds: length of an interval.
    """
    begin = np.array([job.arrival for job in jobs]) / interval_seconds
    end = begin + times
    edges = np.arange(int(np.ceil(end.max())) + 1)
    spent = np.clip(end[:, None], edges[:-1], edges[1:]) - np.clip(begin[:, None], edges[:-1], edges[1:])
    found: Floats = spent.sum(axis=0)
    return found


def costs_to_go(each: Floats, discount: float) -> Floats:
    """Return what each interval and all later ones cost, later ones discounted, (intervals,).

    Args:
        each: cost of each interval, (intervals,).
        discount: of an interval.
    """
    found, later = np.zeros(len(each)), 0.0
    for interval in range(len(each) - 1, -1, -1):
        later = found[interval] = each[interval] + discount * later
    return found


def improve(
    net: PlacerNet,
    optimizer: torch.optim.Optimizer,
    experience: PlacementExperience,
    settings: GradientSettings,
    seed: int,
) -> None:
    """Make choices more likely that were worth more than others: PPO's clipped objective, several passes.

    Args:
        net: changed.
        optimizer: of its weights.
        experience: of the present policy.
        settings: of the update.
        seed: of the order.
    """
    rng = np.random.default_rng(seed)
    for _ in range(settings.passes):
        order = torch.from_numpy(rng.permutation(len(experience.chosen)))
        for which in torch.split(order, settings.batch):
            loss = _loss(net, experience, which, settings)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()


def _loss(net: PlacerNet, experience: PlacementExperience, which: Tensor, settings: GradientSettings) -> Tensor:
    scores = net(experience.groups[which], experience.job[which], experience.allowed[which])
    logs = torch.log_softmax(scores, dim=1)
    ratio = torch.exp(logs.gather(1, experience.chosen[which, None])[:, 0] - experience.logs[which])
    worth = experience.worth[which]
    gain = torch.minimum(ratio * worth, ratio.clamp(1 - settings.clip, 1 + settings.clip) * worth)
    spread = -(logs.exp() * logs.masked_fill(~experience.allowed[which], 0)).sum(dim=1)
    return -(gain + settings.entropy * spread).mean()
