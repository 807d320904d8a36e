"""This module makes the graph scheduler's agents: they imitate a planner, learn from rewards, and the best are kept.

One set of weights serves all agents of all the clusters that it learns in. All of it happens in simulated clusters
whose speeds the caller chooses: those of a fitted model, where the truth is not to be had.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.learning.placement.graph.best import AgentsJudge, BestAgents
from dl2_scheduler.learning.placement.graph.lessons import FIRST_LESSON, lead
from dl2_scheduler.learning.placement.graph.net import GraphNet, TaskBook, TaskTensors, Wiring
from dl2_scheduler.learning.placement.graph.rewards import (
    RewardKind,
    over_own_mean,
    progress_added,
    progress_after,
    saved,
)
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings, costs, costs_to_go
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents, Scorer, actions, place_by_agents
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.sim.placed.scenario import Scenario

_LEARNT = 3_000_000
"""Seed of the first sequence that rewards come from."""


@dataclass(frozen=True)
class GraphSettings:
    """These `GraphSettings` say how agents are made.

    Attributes:
        taught: sequences of each scenario in a round of imitation; 0: nobody is imitated.
        disturbed: part of the intervals of the first round in which the planner decides without patience.
        led: part of the intervals in which the agents decide, of each later round of imitation.
        epochs: passes over all choices so far in a round.
        updates: from rewards.
        judged_every: updates between two judgements.
        selected: sequences of each scenario by which agents are judged.
        reward: of a choice.
        gradient: of the updates; its sequences are of one scenario after the other.
    """

    taught: int = 2
    disturbed: float = 0.3
    led: tuple[float, ...] = ()
    epochs: int = 8
    updates: int = 0
    judged_every: int = 5
    selected: int = 2
    reward: RewardKind = RewardKind.TOUCHED
    gradient: GradientSettings = field(default=GradientSettings(sequences=1, episodes=6, batch=512, discount=0.95))


TAUGHT = GraphSettings(updates=5)
MENDED = GraphSettings(taught=0, updates=60)
"""The ways to learn: by a planner's lessons first, which alone may teach to wait too much, and from rewards alone."""


@dataclass
class SamplingAgents:
    """See `PlacementPolicy`: agents draw their actions by the probabilities, and keep them.

    Attributes:
        policy: whose scores they take.
        scenario: where they are.
        reward: of a choice.
        rng: draws.
        book: of what was drawn.
        logs: logarithms of the probabilities of what was drawn.
        interval: in which each was drawn.
        job: about which each was drawn, by its number in the sequence.
        gained: rewards of an interval alone that each choice got.
        progress: of all jobs, by interval.
    """

    policy: GraphAgents
    scenario: Scenario
    reward: RewardKind
    rng: np.random.Generator
    book: TaskBook
    logs: list[float] = field(default_factory=list)
    interval: list[int] = field(default_factory=list)
    job: list[int | str] = field(default_factory=list)
    gained: list[float] = field(default_factory=list)
    progress: dict[int, float] = field(default_factory=dict)

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        interval = round(view.now / self.scenario.workload.interval_seconds)
        scorer, chosen = Scorer(self.policy.arrays), list[int]()

        def draw(watched: Watched, inputs: TaskInputs) -> int:
            scores = np.where(actions(inputs), scorer.scores(watched, inputs), -np.inf)
            odds = np.exp(scores - scores.max())
            odds /= odds.sum()
            action = int(self.rng.choice(len(odds), p=odds))
            self.book.add(watched, inputs, action)
            self.logs.append(float(np.log(odds[action])))
            self.interval.append(interval)
            self.job.append(view.jobs[inputs.job].job.id)
            chosen.append(inputs.job)
            return action

        places = place_by_agents(view, draw)
        if self.reward is RewardKind.TOUCHED:
            added = progress_added(self.scenario, view, places)
            self.gained += [added.get(job, 0.0) for job in chosen]
        elif self.reward is not RewardKind.UNFINISHED:
            progress = progress_after(self.scenario, view, places)
            self.progress[interval] = float(progress.sum())
            self.gained += [float(progress[job]) if job in places.groups else 0.0 for job in chosen]
        return places


def fit_agents(
    net: GraphNet,
    lessons: Sequence[tuple[Wiring, TaskTensors]],
    epochs: int,
    seed: int,
    rate: float = 2e-3,
    batch: int = 256,
) -> float:
    """Fit a network to choices, and return the loss of the last epoch: the mean of -log of the chosen's probability.

    Args:
        net: changed.
        lessons: a cluster's graphs, and a planner's choices there.
        epochs: passes over them.
        seed: of the order.
        rate: of Adam at the start; it falls to nothing along a cosine.
        batch: choices of an update, which follow one another, as these share their graphs.
    """
    rng, losses = np.random.default_rng(seed), [0.0]
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    rows = [(number, start) for number, (_, each) in enumerate(lessons) for start in range(0, len(each.chosen), batch)]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(rows))
    for _ in range(epochs):
        losses = []
        for row in rng.permutation(len(rows)):
            number, start = rows[row]
            wiring, taught = lessons[number]
            which = torch.arange(start, min(start + batch, len(taught.chosen)))
            loss = nn.functional.cross_entropy(taught.scores(net, wiring, which), taught.chosen[which])
            _step(net, optimizer, loss)
            schedule.step()
            losses.append(float(loss.detach()))
    return float(np.mean(losses))


def learn_agents(
    scenarios: Sequence[Scenario],
    allocation: AllocationPolicy,
    planners: Sequence[PodSearch],
    lessons: Sequence[TaskBook],
    settings: GraphSettings = GraphSettings(),
    seed: int = 0,
    tell: Callable[[int, float], None] = lambda *_: None,
    keep: Callable[[GraphAgents], None] = lambda _: None,
) -> GraphAgents:
    """Make agents, and return those that were best on sequences which nobody learnt from.

    Args:
        scenarios: in which they are to be good, with the same models.
        allocation: says how many tasks jobs get.
        planners: one for each scenario, to be imitated.
        lessons: see `first_lessons`; none: agents begin from nothing.
        settings: of the run.
        seed: of everything but the first lessons.
        tell: gets at each judgement how many updates there were, and by which part of the planners' completion times
            the agents' lie over them.
        keep: gets all agents that are the best so far, so that an interrupted run leaves something.
    """
    torch.manual_seed(seed)
    net = GraphNet(len(scenarios[0].profiles))
    best = BestAgents(AgentsJudge(scenarios, allocation, planners, settings.selected), tell, keep)
    books = [book.copied() for book in lessons]
    if not books:
        best.offer(net.policy(), 0)
    for turn, part in enumerate((0.0, *settings.led) if books else ()):
        if turn:
            first = FIRST_LESSON + (seed * len(settings.led) + turn) * settings.taught
            numbers = range(first, first + settings.taught)
            lead(net.policy(), part, scenarios, planners, books, allocation, numbers)
        taught = [(_wiring(scenario), book.tensors()) for scenario, book in zip(scenarios, books, strict=True)]
        fit_agents(net, taught, settings.epochs, seed)
        best.offer(net.policy(), 0)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.gradient.rate)
    for update in range(settings.updates):
        for group in optimizer.param_groups:
            group["lr"] = settings.gradient.rate * (1 - 0.9 * update / settings.updates)
        scenario = scenarios[update % len(scenarios)]
        number = _LEARNT + seed * settings.updates + update
        improve_agents(net, optimizer, scenario, allocation, settings.gradient, number, settings.reward)
        if (update + 1) % settings.judged_every == 0 or update + 1 == settings.updates:
            best.offer(net.policy(), update + 1)
    assert best.policy is not None
    return best.policy


def improve_agents(
    net: GraphNet,
    optimizer: torch.optim.Optimizer,
    scenario: Scenario,
    allocation: AllocationPolicy,
    settings: GradientSettings,
    seed: int,
    reward: RewardKind,
) -> None:
    """Run episodes, and make choices more likely that were worth more than others: PPO's clipped objective.

    Args:
        net: changed.
        optimizer: of its weights.
        scenario: of the episodes.
        allocation: says how many tasks jobs get.
        settings: of the update.
        seed: of jobs, draws and order.
        reward: of a choice.
    """
    book, logs, worth = TaskBook(), [], []
    policy = net.policy()
    for number in range(settings.sequences):
        jobs = scenario.jobs(settings.sequences * seed + number)
        agents, spent = [], []
        for episode in range(settings.episodes):
            agents.append(
                SamplingAgents(policy, scenario, reward, np.random.default_rng([seed, number, episode]), book)
            )
            times = scenario.completion_times(allocation, agents[-1], jobs)
            spent.append(costs(jobs, times, scenario.workload.interval_seconds))
            logs += agents[-1].logs
        worth.append(_worth(agents, spent, settings.discount, reward))
    tasks, old, gains = book.tensors(), torch.tensor(logs), torch.from_numpy(np.concatenate(worth).astype(np.float32))
    wiring, rng = _wiring(scenario), np.random.default_rng(seed)
    parts = torch.split(torch.arange(len(old)), settings.batch)
    for _ in range(settings.passes):
        for part in rng.permutation(len(parts)):
            which = parts[part]
            _step(net, optimizer, _clipped(net, wiring, tasks, which, old[which], gains[which], settings))


def _worth(agents: Sequence[SamplingAgents], spent: Sequence[Floats], discount: float, reward: RewardKind) -> Floats:
    """Return what each choice was worth more than others, in deviations, (choices,).

    Args:
        agents: of each episode of the same jobs.
        spent: time that jobs spent in the system in each interval, of each episode.
        discount: of an interval.
        reward: of a choice.
    """
    if reward in (RewardKind.OWN, RewardKind.TOUCHED):
        gained = np.concatenate([each.gained for each in agents])
        return over_own_mean(gained, [job for each in agents for job in each.job])
    if reward is RewardKind.ALL:
        spent = [
            -np.array([each.progress.get(interval, 0.0) for interval in range(len(costs_of))])
            for each, costs_of in zip(agents, spent, strict=True)
        ]
    return saved([costs_to_go(each, discount) for each in spent], [each.interval for each in agents])


def _clipped(
    net: GraphNet,
    wiring: Wiring,
    tasks: TaskTensors,
    which: Tensor,
    old: Tensor,
    worth: Tensor,
    settings: GradientSettings,
) -> Tensor:
    logs = torch.log_softmax(tasks.scores(net, wiring, which), dim=1)
    ratio = torch.exp(logs.gather(1, tasks.chosen[which, None])[:, 0] - old)
    gain = torch.minimum(ratio * worth, ratio.clamp(1 - settings.clip, 1 + settings.clip) * worth)
    spread = -(logs.exp() * logs.masked_fill(~tasks.allowed[which], 0)).sum(dim=1)
    return -(gain + settings.entropy * spread).mean()


def _step(net: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def _wiring(scenario: Scenario) -> Wiring:
    return Wiring(cluster_graphs(scenario.machines, scenario.topology))
