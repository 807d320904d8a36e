"""Agents of which a model of speeds picks: the contract, whose goal, what is proposed, and when a job waits."""

from dataclasses import replace

import pytest
import torch

from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.figures.placement.contenders import TRUE
from dl2_scheduler.figures.placement.graph_contenders import graph_planners
from dl2_scheduler.learning.placement.graph.net import GraphNet
from dl2_scheduler.policies.learnt.graph.checked import CheckedAgents
from dl2_scheduler.policies.placement.local_search import JobPatience
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.graph_clusters import NetworkType
from dl2_scheduler.sim.placed.scenario import Scenario

FIXED = FixedDemand()


def checked(scenario: Scenario, **changed) -> CheckedAgents:
    torch.manual_seed(0)
    search = graph_planners(scenario, {TRUE: scenario.world})["patient pod search, true"]
    return CheckedAgents(GraphNet(len(scenario.profiles)).policy(), replace(search, **changed))


class Watching:
    """A policy that lets another one decide, and keeps what it saw and got."""

    def __init__(self, policy):
        self.policy, self.seen = policy, []

    def place(self, view):
        places = self.policy.place(view)
        self.seen.append((view, places))
        return places


def crowded(scenario: Scenario, jobs: int = 40) -> tuple:
    """Return what agents that nobody taught, and that let no job wait, see when much is placed."""
    watching = Watching(replace(checked(scenario, may_wait=False), proposals=1, partitions=1))
    scenario.completion_times(FIXED, watching, scenario.jobs(1)[:jobs])
    return max((view for view, _ in watching.seen if view.missing.any()), key=lambda view: len(view.placed.job))


@pytest.mark.parametrize("network", NetworkType)
def test_untaught_agents_keep_the_contract_and_repeat(network):
    scenario = Scenario.graph(network, small=True, mean=60.0, lengths=(0.5, 1.0))
    jobs = scenario.jobs(1)[:20]
    watching = [Watching(checked(scenario)) for _ in range(2)]
    times = [scenario.completion_times(FIXED, each, jobs).tolist() for each in watching]
    assert times[0] == times[1]
    pods = set()
    for view, places in watching[0].seen:
        check_placement(view, places)
        pod_of = view.topology.partition_of[view.machines.node_of]
        for job, roles in places.groups.items():
            (pod,) = set(pod_of[list(roles[0] + roles[1])].tolist())
            pods.add((view.jobs[job].job.partition, pod))
    assert any(own != pod for own, pod in pods)  # some are forwarded


class _Proposing(CheckedAgents):
    """Agents that propose to spread a job over nodes, and to keep it on one socket."""

    order = 1

    def _proposals(self, watched, scorer, rng, job, left):
        yield from [([0], [6]), ([8], [8])][:: self.order]


@pytest.mark.parametrize("order", [1, -1])
def test_the_model_picks_the_best_proposal(order):
    scenario = Scenario.graph(small=True)
    job = next(job for job in scenario.jobs(1) if job.max_workers == job.max_servers == 1)
    policy = checked(scenario)
    proposing = _Proposing(policy.agents, policy.search)
    object.__setattr__(proposing, "order", order)
    watching = Watching(proposing)
    scenario.completion_times(FIXED, watching, [replace(job, arrival=0.0)])
    assert watching.seen[0][1].groups == {0: ((8,), (8,))}


def test_a_job_stays_in_its_partition_where_it_alone_proposes():
    scenario = Scenario.graph(small=True)
    view = crowded(scenario)
    policy = replace(checked(scenario, may_wait=False), partitions=1)
    pod_of = view.topology.partition_of[view.machines.node_of]
    places = policy.place(view).groups
    assert places
    assert all(pod_of[roles[0][0]] == view.jobs[job].job.partition for job, roles in places.items())


def test_jobs_wait_where_the_model_finds_all_proposals_bad():
    """Agents that nobody taught propose places that cost others more than a job gains there."""
    scenario = Scenario.graph(small=True)
    view = crowded(scenario)
    least = JobPatience(1.01, scenario.speed_alone)
    assert checked(scenario, may_wait=False).place(view).groups
    assert not checked(scenario, patience=least).place(view).groups
