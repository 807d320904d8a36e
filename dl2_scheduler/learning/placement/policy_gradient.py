"""This module lets the learnt placement policy learn from rewards: PPO (Schulman et al., 2017), in simulated clusters.

The cost of an interval is the time that jobs spend in the system in it, so that an episode's costs sum up to the sum of
its jobs' completion times. (Harmony's own reward, each job's part of its training, sums up to the number of jobs
whatever the policy does: only discounting makes speed pay there.) Several episodes run the same jobs; what a decision
is worth is how much less its episode costs from that interval on than the others on the average, which needs no value
network.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.policies.learnt.placer import LearntPlacer, PlacerInputs, place_by
from dl2_scheduler.sim.placed.scenario import Scenario


@dataclass(frozen=True)
class GradientSettings:
    """These `GradientSettings` say how a policy learns from rewards.

    Attributes:
        sequences: of jobs in an update.
        episodes: of each sequence.
        discount: of an interval's cost for decisions of the interval before.
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


@dataclass
class SamplingPlacer:
    """See `PlacementPolicy`: it draws its choices by their probabilities, and keeps them.

    Attributes:
        policy: whose scores it takes.
        interval_seconds: length of an interval.
        rng: draws.
        inputs: what the policy read for each choice.
        chosen: what was drawn.
        logs: logarithms of the probabilities of what was drawn.
        interval: in which each was drawn.
    """

    policy: LearntPlacer
    interval_seconds: float
    rng: np.random.Generator
    inputs: list[PlacerInputs] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    interval: list[int] = field(default_factory=list)

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        interval = round(view.now / self.interval_seconds)
        return place_by(view, lambda inputs: self._draw(inputs, interval))

    def _draw(self, inputs: PlacerInputs, interval: int) -> int | None:
        if not inputs.allowed[:-1].any():
            return None
        scores = np.where(inputs.allowed, self.policy.scores(inputs), -np.inf)
        odds = np.exp(scores - scores.max())
        odds /= odds.sum()
        choice = int(self.rng.choice(len(odds), p=odds))
        self.inputs.append(inputs)
        self.chosen.append(choice)
        self.logs.append(float(np.log(odds[choice])))
        self.interval.append(interval)
        return None if choice == len(inputs.groups) else choice


@dataclass(frozen=True)
class PlacementExperience:
    """A `PlacementExperience` is what choices were made of, and what they were worth; rows are choices.

    Attributes:
        groups: see `PlacerInputs`, (choices, groups, group_width).
        job: see there, (choices, job_width).
        allowed: see there, (choices, groups + 1).
        chosen: (choices,).
        logs: of the probabilities when they were drawn, (choices,).
        worth: how much less the episode cost from then on than others of the same jobs, in deviations of these,
            (choices,).
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


def worths(episodes: Sequence[Floats], placers: Sequence[SamplingPlacer]) -> Floats:
    """Return what the choices of several episodes of the same jobs were worth, one episode after another, (choices,).

    Args:
        episodes: costs to go of each.
        placers: that made the choices.
    """
    longest = max(len(each) for each in episodes)
    padded = np.stack([np.pad(each, (0, longest - len(each))) for each in episodes])
    saved = padded.mean(axis=0) - padded
    deviation = np.sqrt((saved**2).mean()) + 1e-8
    return np.concatenate([saved[row, placer.interval] / deviation for row, placer in enumerate(placers)])


def gather(
    scenarios: Sequence[Scenario],
    allocation: AllocationPolicy,
    policy: LearntPlacer,
    settings: GradientSettings,
    seed: int,
) -> PlacementExperience:
    """Run episodes, and return the choices that were made in them.

    Args:
        scenarios: in turn, one for each sequence of jobs.
        allocation: says how many tasks jobs get.
        policy: draws.
        settings: how many episodes.
        seed: of the jobs and the draws.
    """
    every: list[SamplingPlacer] = []
    worth = []
    for number in range(settings.sequences):
        scenario = scenarios[number % len(scenarios)]
        length = scenario.workload.interval_seconds
        jobs = scenario.jobs(settings.sequences * seed + number)
        placers = [
            SamplingPlacer(policy, length, np.random.default_rng([seed, number, episode]))
            for episode in range(settings.episodes)
        ]
        spent = [costs(jobs, scenario.completion_times(allocation, placer, jobs), length) for placer in placers]
        worth.append(worths([costs_to_go(each, settings.discount) for each in spent], placers))
        every += placers
    inputs = [each for placer in every for each in placer.inputs]
    return PlacementExperience(
        torch.from_numpy(np.stack([each.groups for each in inputs])),
        torch.from_numpy(np.stack([each.job for each in inputs])),
        torch.from_numpy(np.stack([each.allowed for each in inputs])),
        torch.tensor([choice for placer in every for choice in placer.chosen]),
        torch.tensor([log for placer in every for log in placer.logs]),
        torch.from_numpy(np.concatenate(worth).astype(np.float32)),
    )


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
