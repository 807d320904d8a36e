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
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PlacementPolicy
from dl2_scheduler.learning.placement.graph_lessons import TAUGHT, lead
from dl2_scheduler.learning.placement.graph_net import GraphNet, TaskBook, TaskTensors, Wiring
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings, costs, costs_to_go
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents, Scorer, actions, place_by_agents
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.sim.placed.scenario import Scenario

_SELECTED, _LEARNT = 2_000_000, 3_000_000
"""Seeds of the sequences that policies are selected by, and that rewards come from."""


@dataclass(frozen=True)
class GraphSettings:
    """These `GraphSettings` say how agents are made.

    Attributes:
        taught: sequences of each scenario in a round of imitation.
        disturbed: part of the intervals of the first round in which the planner decides without patience.
        led: part of the intervals in which the agents decide, of each later round of imitation.
        epochs: passes over all choices so far in a round.
        updates: from rewards.
        judged_every: updates between two judgements.
        selected: sequences of each scenario by which agents are judged.
        gradient: of the updates; its sequences are of one scenario after the other.
    """

    taught: int = 2
    disturbed: float = 0.3
    led: tuple[float, ...] = ()
    epochs: int = 8
    updates: int = 0
    judged_every: int = 10
    selected: int = 2
    gradient: GradientSettings = field(default=GradientSettings(sequences=3, episodes=6, batch=1024, discount=0.95))


@dataclass
class SamplingAgents:
    """See `PlacementPolicy`: agents draw their actions by the probabilities, and keep them.

    Attributes:
        policy: whose scores they take.
        interval_seconds: length of an interval.
        rng: draws.
        book: of what was drawn.
        logs: logarithms of the probabilities of what was drawn.
        interval: in which each was drawn.
    """

    policy: GraphAgents
    interval_seconds: float
    rng: np.random.Generator
    book: TaskBook
    logs: list[float] = field(default_factory=list)
    interval: list[int] = field(default_factory=list)

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        scorer, interval = Scorer(self.policy.arrays), round(view.now / self.interval_seconds)

        def draw(watched: Watched, inputs: TaskInputs) -> int:
            scores = np.where(actions(inputs), scorer.scores(watched, inputs), -np.inf)
            odds = np.exp(scores - scores.max())
            odds /= odds.sum()
            action = int(self.rng.choice(len(odds), p=odds))
            self.book.add(watched, inputs, action)
            self.logs.append(float(np.log(odds[action])))
            self.interval.append(interval)
            return action

        return place_by_agents(view, draw)


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
    tell: Callable[[str], None] = lambda _: None,
) -> GraphAgents:
    """Make agents, and return those that were best on sequences which nobody learnt from.

    Args:
        scenarios: in which they are to be good, with the same models.
        allocation: says how many tasks jobs get.
        planners: one for each scenario, to be imitated.
        lessons: see `first_lessons`.
        settings: of the run.
        seed: of everything but the first lessons.
        tell: gets a line for each judgement.
    """
    torch.manual_seed(seed)
    net = GraphNet(len(scenarios[0].profiles))
    judge = _Judge(scenarios, allocation, planners, settings.selected)
    books = [book.copied() for book in lessons]
    best, least = net.policy(), np.inf
    for turn, part in enumerate((0.0, *settings.led)):
        if turn:
            first = TAUGHT + (seed * len(settings.led) + turn) * settings.taught
            numbers = range(first, first + settings.taught)
            lead(net.policy(), part, scenarios, planners, books, allocation, numbers)
        taught = [(_wiring(scenario), book.tensors()) for scenario, book in zip(scenarios, books, strict=True)]
        loss = fit_agents(net, taught, settings.epochs, seed)
        if (excess := judge.excess(policy := net.policy())) < least:
            best, least = policy, excess
        tell(f"imitated, loss {loss:.3f}: {excess:+.1%}")
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.gradient.rate)
    for update in range(settings.updates):
        for group in optimizer.param_groups:
            group["lr"] = settings.gradient.rate * (1 - 0.9 * update / settings.updates)
        scenario = scenarios[update % len(scenarios)]
        number = _LEARNT + seed * settings.updates + update
        improve_agents(net, optimizer, scenario, allocation, settings.gradient, number)
        if (update + 1) % settings.judged_every == 0:
            if (excess := judge.excess(policy := net.policy())) < least:
                best, least = policy, excess
            tell(f"{update + 1} updates: {excess:+.1%}")
    return best


def improve_agents(
    net: GraphNet,
    optimizer: torch.optim.Optimizer,
    scenario: Scenario,
    allocation: AllocationPolicy,
    settings: GradientSettings,
    seed: int,
) -> None:
    """Run episodes, and make choices more likely that were worth more than others: PPO's clipped objective.

    Args:
        net: changed.
        optimizer: of its weights.
        scenario: of the episodes.
        allocation: says how many tasks jobs get.
        settings: of the update.
        seed: of jobs, draws and order.
    """
    book, logs, worth = TaskBook(), [], []
    policy, length = net.policy(), scenario.workload.interval_seconds
    for number in range(settings.sequences):
        jobs = scenario.jobs(settings.sequences * seed + number)
        agents, to_go = [], []
        for episode in range(settings.episodes):
            agents.append(SamplingAgents(policy, length, np.random.default_rng([seed, number, episode]), book))
            spent = costs(jobs, scenario.completion_times(allocation, agents[-1], jobs), length)
            to_go.append(costs_to_go(spent, settings.discount))
            logs += agents[-1].logs
        worth.append(saved(to_go, [each.interval for each in agents]))
    tasks, old, gains = book.tensors(), torch.tensor(logs), torch.from_numpy(np.concatenate(worth).astype(np.float32))
    wiring, rng = _wiring(scenario), np.random.default_rng(seed)
    parts = torch.split(torch.arange(len(old)), settings.batch)
    for _ in range(settings.passes):
        for part in rng.permutation(len(parts)):
            which = parts[part]
            _step(net, optimizer, _clipped(net, wiring, tasks, which, old[which], gains[which], settings))


def saved(episodes: Sequence[Floats], intervals: Sequence[Sequence[int]]) -> Floats:
    """Return how much less each choice's episode cost from then on than others of the same jobs, in deviations.

    Args:
        episodes: costs to go of each, (intervals,).
        intervals: in which the choices of each were made.
    """
    longest = max(len(each) for each in episodes)
    padded = np.stack([np.pad(each, (0, longest - len(each))) for each in episodes])
    less = padded.mean(axis=0) - padded
    deviation = np.sqrt((less**2).mean()) + 1e-8
    found: Floats = np.concatenate([less[row, when] / deviation for row, when in enumerate(intervals)])
    return found


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


class _Judge:
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
