"""The graph paper's own agents: numpy decides as torch does, the contract, rewards, and that they learn at all."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.figures.placement.contenders import TRUE
from dl2_scheduler.figures.placement.graph_contenders import graph_planners
from dl2_scheduler.learning.placement.graph.paper_net import PaperNet, paper_policy
from dl2_scheduler.learning.placement.graph.paper_run import (
    Decided,
    DrawingPaperAgents,
    PaperAgentsSettings,
    _by_interval,
    _learn,
    learn_paper_agents,
)
from dl2_scheduler.policies.learnt.graph.agent_files import open_agents, save_agents
from dl2_scheduler.policies.learnt.graph.paper_agents import PaperAgents, PaperScorer
from dl2_scheduler.policies.learnt.graph.paper_inputs import MOST_JOBS, PAPER_VERTEX
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.formula.clusters import NetworkType
from dl2_scheduler.sim.placed.scenario import Scenario

FIXED = FixedDemand()
SCENARIO = Scenario.graph(small=True, mean=60.0, lengths=(0.5, 1.0))
GRAPHS = cluster_graphs(SCENARIO.machines, SCENARIO.topology)


def networks(seed: int = 0, graphs=GRAPHS) -> list[PaperNet]:
    torch.manual_seed(seed)
    return [PaperNet(graphs, pod, len(SCENARIO.profiles)) for pod in range(len(graphs.pods))]


def drawn(policy: PaperAgents, jobs: int = 16, scenario: Scenario = SCENARIO) -> DrawingPaperAgents:
    agents = DrawingPaperAgents(policy, scenario, np.random.default_rng(0))
    scenario.completion_times(FIXED, agents, scenario.jobs(1)[:jobs])
    return agents


def test_the_agents_numbers_are_the_networks(monkeypatch):
    seen = []
    scores = PaperScorer.scores

    def kept(self, watched, inputs):
        seen.append((inputs.pod, scores(self, watched, inputs)))
        return seen[-1][1]

    monkeypatch.setattr(PaperScorer, "scores", kept)
    nets = networks()
    agents = drawn(paper_policy(nets))
    assert len(agents.decided) == 2
    for pod, decided in agents.decided.items():
        told, between = (torch.from_numpy(np.stack([getattr(e, n) for e in decided])) for n in ("told", "between"))
        with torch.no_grad():
            found = nets[pod]([each.own for each in decided], told, between)[0].numpy()
        assert found == pytest.approx(np.stack([each for agent, each in seen if agent == pod]), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("network", NetworkType)
def test_any_weights_keep_the_contract_and_repeat(network):
    scenario = Scenario.graph(network, small=True, mean=60.0, lengths=(0.5, 1.0))
    policy = paper_policy(networks(1, cluster_graphs(scenario.machines, scenario.topology)))
    jobs, seen = scenario.jobs(1)[:10], []

    class Watching:
        def place(self, view):
            seen.append((view, policy.place(view)))
            return seen[-1][1]

    times = [scenario.completion_times(FIXED, Watching(), jobs).tolist() for _ in range(2)]
    assert times[0] == times[1]
    for view, places in seen:
        check_placement(view, places)
        pod_of = view.topology.partition_of[view.machines.node_of]
        assert all(len(set(pod_of[list(a + b)])) == 1 for a, b in places.groups.values())


def test_a_run_is_kept_and_belongs_to_its_cluster(tmp_path):
    policy = paper_policy(networks())
    save_agents(tmp_path, policy, SCENARIO.profiles)
    opened = open_agents(tmp_path).agents
    assert isinstance(opened, PaperAgents)
    assert all((opened.arrays[name] == policy.arrays[name]).all() for name in policy.arrays)
    other = Scenario.graph(NetworkType.VL2, small=True)
    with pytest.raises(BadInput, match=r"2 partitions' with 40 groups each, and the cluster has 4 with 20"):
        other.completion_times(FIXED, opened, other.jobs(0)[:1])
    damaged = {**policy.arrays, "1.actor.bias": policy.arrays["1.actor.bias"][1:]}
    save_agents(tmp_path, PaperAgents(damaged), SCENARIO.profiles)
    with pytest.raises(BadInput, match="damaged"):
        open_agents(tmp_path)


def test_a_job_gets_its_own_progress_and_one_without_places_nothing():
    agents = drawn(paper_policy(networks()))
    decided = [each for own in agents.decided.values() for each in own]
    assert decided[0].own.rows.shape[1] == PAPER_VERTEX == 2 + 2 * MOST_JOBS
    assert all(0 <= each.reward <= 1 for each in decided)
    assert sum(each.reward > 0 for each in decided) > len(decided) / 2


def _decided(interval: int, chosen: int, reward: float) -> Decided:
    each = drawn(paper_policy(networks()), 1).decided
    (first, *_), *_ = each.values()
    return replace(first, interval=interval, chosen=chosen, reward=reward)


def test_an_intervals_last_task_leads_to_the_next_ones_state():
    one = _decided(0, 0, 0.0)
    parts = _by_interval([replace(one, interval=number) for number in (0, 0, 2, 3)])
    assert [[each.interval for each in part] for part in parts] == [[0, 0, 2], [2, 3], [3]]


def test_agents_learn_which_group_is_rewarded():
    """A bandit: one group gives 1, others nothing; its probability grows to nearly all."""
    net = networks()[0]
    one = _decided(0, 0, 0.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    told, between = torch.from_numpy(one.told[None]), torch.from_numpy(one.between[None])

    def odds() -> np.ndarray:
        with torch.no_grad():
            scores = net([one.own], told, between)[0][0].masked_fill(~torch.from_numpy(one.allowed), -torch.inf)
        return torch.softmax(scores, dim=0).numpy().astype(float)

    good = int(np.flatnonzero(one.allowed)[3])
    before = odds()[good]
    for _ in range(60):
        now = odds()
        chosen = rng.choice(len(now), size=8, p=now / now.sum())
        part = [replace(one, chosen=int(each), reward=float(each == good)) for each in chosen]
        _learn(net, optimizer, part, 0.0)
    assert before < 0.1
    assert odds()[good] > 0.9


def test_a_whole_run_ends_and_repeats():
    scenario = replace(SCENARIO, workload=replace(SCENARIO.workload, jobs=3))
    planner = graph_planners(scenario, {TRUE: scenario.world})["patient pod search, true"]
    told: list[int] = []
    settings = PaperAgentsSettings(updates=2, judged_every=1, selected=1)
    first, second = (
        learn_paper_agents(scenario, FIXED, planner, settings, 3, lambda done, _: told.append(done)) for _ in range(2)
    )
    assert told == [0, 1, 2] * 2
    assert all((first.arrays[name] == second.arrays[name]).all() for name in first.arrays)
