"""Agents of which a model of speeds picks: the contract, whose goal, what is proposed, and when a job waits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.figures.placement.contenders import TRUE
from dl2_scheduler.figures.placement.graph_contenders import graph_planners
from dl2_scheduler.learning.placement.graph.net import GraphNet
from dl2_scheduler.policies.learnt.graph.agent_inputs import Watched
from dl2_scheduler.policies.learnt.graph.agents import Scorer
from dl2_scheduler.policies.learnt.graph.checked import CheckedAgents
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.learnt.graph.proposals import Proposals, _Draws
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, waiting
from dl2_scheduler.policies.placement.local_search import JobPatience
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.formula.clusters import NetworkType
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
        return [([0], [6]), ([8], [8])][:: self.order]


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


@pytest.mark.parametrize("network", NetworkType)
def test_what_is_drawn_side_by_side_is_what_an_agent_reads_alone(network):
    scenario = Scenario.graph(network, small=True)
    view, agents = crowded(scenario), checked(scenario).agents
    watched = Watched(Draft(view), cluster_graphs(view.machines, view.topology))
    scorer, compared = Scorer(agents.arrays), 0
    proposals = Proposals(watched, scorer, np.random.default_rng(0), ranked=10**6)  # every group that takes a task
    for job in waiting(view, JobOrder.SHORTEST)[:6]:
        roles = list(missing_tasks(view, job))
        for pod in range(view.topology.partitions):
            forwarded = pod != view.jobs[job].job.partition
            begun = proposals._begun(job, pod, 2, roles, (3, forwarded))
            if not begun:
                continue
            draws, groups = _Draws(watched, job, begun), watched.graphs.pods[pod].groups
            known = scorer.known(watched, draws.pod, draws.groups)
            watched.draft.put(job, roles[0], int(groups[begun[0][2]]))
            for role in roles[1:]:
                alone, some = watched.task(pod, job, role, 3, forwarded), draws.groups[0]
                near, task = draws.near(role), draws.about(role, 3)
                assert near[0] == pytest.approx(alone.near[some], abs=1e-5)
                assert task[0] == pytest.approx(alone.task, abs=1e-5)
                is_real = np.arange(len(some)) < len(begun[0][3])
                assert (draws.fits(role)[0] == alone.fits[some] & is_real).all()
                scores = scorer.of_some(watched, known, draws.pod, near, task)
                assert scores[0] == pytest.approx(scorer.scores(watched, alone)[some], rel=1e-3, abs=1e-5)
                compared += 1
                open_ = np.where(draws.fits(role), scores, -np.inf)
                draws.take(role, open_)
                if not np.isfinite(open_[0]).any():
                    break
                watched.draft.put(job, role, int(groups[some[open_[0].argmax()]]))
            watched.draft.drop(job)
    assert compared > 10


def test_proposals_of_few_candidates_are_whole_each_once_and_fit():
    scenario = Scenario.graph(small=True)
    view, agents = crowded(scenario), checked(scenario).agents
    watched = Watched(Draft(view), cluster_graphs(view.machines, view.topology))
    proposals = Proposals(watched, Scorer(agents.arrays), np.random.default_rng(0), ranked=2)
    found = 0
    for job in waiting(view, JobOrder.SHORTEST)[:6]:
        each = proposals.of(job, [0, 1], 4, 0)
        keys = {tuple(tuple(sorted(role)) for role in groups) for groups in each}
        assert len(keys) == len(each) <= 8
        for groups in each:
            assert [len(role) for role in groups] == view.missing[job].tolist()
            watched.draft.put_all(job, groups)
            assert (watched.draft.free >= -1e-9).all()
            watched.draft.drop(job)
        found += len(each)
    assert found > 6
