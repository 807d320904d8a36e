"""This module learns as the graph scheduler's paper does (section IV-C): REINFORCE with a critic, each agent alone.

The reward of a task is the part of its own job's training that is done in the interval in which the agent placed it; a
later task's counts 0.9. No interval's reward tells of the harm that is done to neighbours, or of intervals to come. The
paper leaves out how many jobs are in a step of Adam (here those of an interval), and how a policy explores (here it
draws by the probabilities).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.learning.placement.graph.best import AgentsJudge, BestAgents
from dl2_scheduler.learning.placement.graph.paper_net import PaperNet, paper_policy
from dl2_scheduler.learning.placement.graph.rewards import progress_after
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.agents import place_by_agents
from dl2_scheduler.policies.learnt.graph.edge_conv import F32
from dl2_scheduler.policies.learnt.graph.paper_agents import PaperAgents, PaperScorer
from dl2_scheduler.policies.learnt.graph.paper_inputs import PaperInputs, paper_actions, paper_inputs
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.sim.placed.scenario import Scenario

_LEARNT = 4_000_000
"""Seed of the first sequence that agents learn from."""


@dataclass(frozen=True)
class PaperAgentsSettings:
    """These `PaperAgentsSettings` say how the paper's own agents learn.

    Attributes:
        updates: sequences of jobs that they learn from, one step of Adam for each interval of one.
        rate: of Adam.
        discount: of a task's value for the one before.
        judged_every: updates between two judgements.
        selected: sequences by which agents are judged.
    """

    updates: int = 200
    rate: float = 1e-5
    discount: float = 0.9
    judged_every: int = 20
    selected: int = 2


@dataclass
class Decided:
    """A `Decided` task is what an agent chose, and what it read for it.

    Attributes:
        interval: in which.
        job: by its number in the sequence.
        own: what the agent read itself.
        told: by the others.
        between: numbers of the edges between partitions.
        allowed: actions.
        chosen: the action.
        reward: of it; 0 until the interval's places are known.
    """

    interval: int
    job: int
    own: PaperInputs
    told: F32
    between: F32
    allowed: NDArray[np.bool_]
    chosen: int
    reward: float = 0.0


@dataclass
class DrawingPaperAgents:
    """See `PlacementPolicy`: the paper's agents draw their actions by the probabilities, and keep them with rewards.

    Attributes:
        policy: whose scores they take.
        scenario: whose speeds tell the progress of jobs.
        rng: draws.
        decided: by agent, in order.
    """

    policy: PaperAgents
    scenario: Scenario
    rng: np.random.Generator
    decided: dict[int, list[Decided]] = field(default_factory=dict)

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        scorer = PaperScorer(self.policy.arrays, cluster_graphs(view.machines, view.topology))
        interval = round(view.now / self.scenario.workload.interval_seconds)
        new: list[tuple[int, Decided]] = []

        def draw(watched: Watched, inputs: TaskInputs) -> int:
            allowed = paper_actions(inputs)
            if not allowed.any():
                return len(allowed)
            scores = np.where(allowed, scorer.scores(watched, inputs), -np.inf)
            action = int((scores + self.rng.gumbel(size=len(scores))).argmax())
            own = paper_inputs(watched, inputs.pod, inputs.job, inputs.role)
            told, between = scorer.told(watched, inputs.pod), watched.numbers(watched.graphs.between)
            new.append((inputs.pod, Decided(interval, inputs.job, own, told, between, allowed, action)))
            return action

        places = place_by_agents(view, draw)
        progress = progress_after(self.scenario, view, places)
        for pod, each in new:
            each.reward = float(progress[each.job]) if each.job in places.groups else 0.0
            self.decided.setdefault(pod, []).append(each)
        return places


def learn_paper_agents(
    scenario: Scenario,
    allocation: AllocationPolicy,
    planner: PodSearch,
    settings: PaperAgentsSettings = PaperAgentsSettings(),
    seed: int = 0,
    tell: Callable[[int, float], None] = lambda *_: None,
    keep: Callable[[PaperAgents], None] = lambda _: None,
) -> PaperAgents:
    """Make agents as the paper does, from nothing, and return those that were best where nobody learnt.

    Args:
        scenario: of the cluster for which they are.
        allocation: says how many tasks jobs get.
        planner: whose completion times theirs are compared with; nobody imitates it.
        settings: of the run.
        seed: of everything.
        tell: see `learn_agents`.
        keep: see there.
    """
    torch.manual_seed(seed)
    graphs = cluster_graphs(scenario.machines, scenario.topology)
    nets = [PaperNet(graphs, pod, len(scenario.profiles)) for pod in range(len(graphs.pods))]
    optimizers = [torch.optim.Adam(net.parameters(), lr=settings.rate) for net in nets]
    best = BestAgents(AgentsJudge([scenario], allocation, [planner], settings.selected), tell, keep)
    best.offer(paper_policy(nets), 0)
    for update in range(settings.updates):
        number = _LEARNT + seed * settings.updates + update
        agents = DrawingPaperAgents(paper_policy(nets), scenario, np.random.default_rng(number))
        scenario.completion_times(allocation, agents, scenario.jobs(number))
        for pod, decided in agents.decided.items():
            for part in _by_interval(decided):
                _learn(nets[pod], optimizers[pod], part, settings.discount)
        if (update + 1) % settings.judged_every == 0 or update + 1 == settings.updates:
            best.offer(paper_policy(nets), update + 1)
    assert best.policy is not None
    return best.policy


def _by_interval(decided: Sequence[Decided]) -> list[list[Decided]]:
    """Return the tasks of each interval, with the one behind them, whose state they led to."""
    changes = [place for place in range(1, len(decided)) if decided[place].interval != decided[place - 1].interval]
    starts = [0, *changes, len(decided)]
    return [list(decided[first : end + 1]) for first, end in pairwise(starts)]


def _learn(net: PaperNet, optimizer: torch.optim.Optimizer, part: Sequence[Decided], discount: float) -> None:
    """Make a step by an interval's tasks: -delta log pi and delta squared, delta = r + 0.9 V(s') - V(s).

    Args:
        net: of the agent, changed.
        optimizer: of its weights.
        part: see `_by_interval`; behind the sequence's last task nothing is worth anything.
        discount: of a task.
    """
    interval = part[0].interval
    count = sum(each.interval == interval for each in part)
    told, between, allowed = (
        np.stack([getattr(each, name) for each in part]) for name in ("told", "between", "allowed")
    )
    scores, worth = net([each.own for each in part], torch.from_numpy(told), torch.from_numpy(between))
    logs = torch.log_softmax(scores.masked_fill(~torch.from_numpy(allowed), -torch.inf), dim=1)
    later = torch.cat([worth.detach()[1:], torch.zeros(1)])[:count]
    reward = torch.tensor([each.reward for each in part[:count]], dtype=torch.float32)
    delta = reward + discount * later - worth[:count]
    chosen = torch.tensor([each.chosen for each in part[:count]])
    gain = delta.detach() * logs[:count].gather(1, chosen[:, None])[:, 0]
    loss = delta.square().mean() - gain.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
