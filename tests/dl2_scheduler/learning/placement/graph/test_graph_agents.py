"""The graph scheduler's agents: the contract, numbers as the network's, permutations, imitation and rewards."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.hardware.view import Places, check_placement
from dl2_scheduler.figures.placement.contenders import TRUE
from dl2_scheduler.figures.placement.graph_contenders import graph_planners
from dl2_scheduler.learning.placement.graph.lessons import Taught, first_lessons, note
from dl2_scheduler.learning.placement.graph.net import GraphNet, TaskBook, Wiring
from dl2_scheduler.learning.placement.graph.rewards import (
    RewardKind,
    over_own_mean,
    progress_added,
    progress_after,
    saved,
)
from dl2_scheduler.learning.placement.graph.run import (
    GraphSettings,
    SamplingAgents,
    fit_agents,
    improve_agents,
    learn_agents,
)
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents, Scorer, actions, place_by_agents
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.scenario import Scenario

FIXED = FixedDemand()
SCENARIO = Scenario.graph(small=True)


def network(seed: int = 0) -> GraphNet:
    torch.manual_seed(seed)
    return GraphNet(len(SCENARIO.profiles))


class Recording:
    """Agents that keep what they read, and all their scores."""

    def __init__(self, policy):
        self.policy, self.book, self.scores, self.seen = policy, TaskBook(), [], []

    def place(self, view):
        scorer = Scorer(self.policy.arrays)

        def best(watched, inputs):
            scores = np.where(actions(inputs), scorer.scores(watched, inputs), -np.inf)
            self.book.add(watched, inputs, int(scores.argmax()))
            self.scores.append(scores)
            return int(scores.argmax())

        places = place_by_agents(view, best)
        self.seen.append((view, places))
        return places


def recorded(scenario: Scenario, net: GraphNet, jobs: int = 10, seed: int = 0) -> Recording:
    recording = Recording(net.policy())
    scenario.completion_times(FIXED, recording, scenario.jobs(seed)[:jobs])
    return recording


class Kept:
    """Agents that may use every other group, and show what they did there."""

    def __init__(self, policy):
        self.policy, self.placed = policy, 0

    def place(self, view):
        shape = len(view.jobs), 2, len(view.free)
        allowed = np.broadcast_to(np.arange(shape[2]) % 2 == 0, shape)
        places = self.policy.place(replace(view, allowed=allowed))
        used = [group for roles in places.groups.values() for groups in roles for group in groups]
        assert all(group % 2 == 0 for group in used)
        self.placed += len(used)
        return places


def test_agents_keep_to_groups_that_tasks_may_have():
    kept = Kept(network().policy())
    SCENARIO.completion_times(FIXED, kept, SCENARIO.jobs(0)[:10])
    assert kept.placed > 20


@pytest.mark.parametrize("network_type", NetworkType)
def test_the_agents_numbers_are_the_networks(network_type):
    scenario, net = Scenario.graph(network_type, small=True, lengths=(0.5, 1.0)), network()
    recording = recorded(scenario, net)
    tensors = recording.book.tensors()
    wiring = Wiring(cluster_graphs(scenario.machines, scenario.topology))
    with torch.no_grad():
        found = tensors.scores(net, wiring, torch.arange(len(recording.scores))).numpy()
    assert found == pytest.approx(np.stack(recording.scores), rel=1e-3, abs=1e-5)
    assert len(recording.book.states) < len(recording.scores)


@pytest.mark.parametrize(
    ("network_type", "servers"),
    [
        *((each, ServerType.DEFAULT) for each in NetworkType),
        *((NetworkType.FAT_TREE, each) for each in ServerType if each != "default"),
    ],
)
def test_any_weights_keep_the_contract_everywhere(network_type, servers):
    """Every placement is whole, in one partition, and within what groups have; runs repeat; jobs are forwarded."""
    scenario = Scenario.graph(network_type, servers, small=True, mean=60.0, lengths=(0.5, 1.0))
    jobs = scenario.jobs(1)[:12]
    policy = network(1).policy()
    eager = {**policy.arrays, "wait.bias": policy.arrays["wait.bias"] - 10}  # else it may wait for ever so long
    recordings = [Recording(type(policy)(eager)) for _ in range(2)]
    times = [scenario.completion_times(FIXED, each, jobs) for each in recordings]
    assert times[0].tolist() == times[1].tolist()
    assert (times[0] > 0).all()
    for view, places in recordings[0].seen:
        check_placement(view, places)
        pod_of = view.topology.partition_of[view.machines.node_of]
        assert all(len(set(pod_of[list(a + b)])) == 1 for a, b in places.groups.values())


def test_a_job_is_forwarded_once_and_then_waits():
    """Agents that always forward where they may: the second agent cannot, and jobs end in the other partition."""
    net = network()
    seen = []

    def forward(watched, inputs):
        allowed = actions(inputs)
        seen.append((inputs.pod, bool(inputs.forwards.any())))
        groups = len(inputs.fits)
        to = np.flatnonzero(allowed[groups:-1])
        return int(groups + to[0]) if len(to) else int(np.flatnonzero(allowed)[0])

    view = recorded(SCENARIO, net).seen[0][0]
    places = place_by_agents(view, forward)
    pod_of = view.topology.partition_of[view.machines.node_of]
    assert places.groups
    for job, roles in places.groups.items():
        assert pod_of[roles[0][0]] != view.jobs[job].job.partition
    assert sum(may for _, may in seen) == len(places.groups)


def test_one_partition_alone_forwards_nothing():
    lone = Scenario.graph(small=True)
    lone = replace(lone, topology=replace(lone.topology, partition_of=np.zeros(40, dtype=np.int64)))
    jobs = [replace(job, partition=0) for job in lone.jobs(0)[:8]]
    recording = Recording(network().policy())
    assert (lone.completion_times(FIXED, recording, jobs) > 0).all()


def test_partitions_in_another_order_get_the_same_scores():
    """Weights are shared: what an agent thinks does not hang on its partition's number."""
    view = recorded(SCENARIO, network()).seen[3][0]
    other = replace(
        view,
        jobs=tuple(replace(each, job=replace(each.job, partition=1 - each.job.partition)) for each in view.jobs),
        free=np.roll(view.free, 40, axis=0),
        placed=replace(view.placed, group=(view.placed.group + 40) % 80),
    )
    found = []
    for each in (view, other):
        recording = Recording(network().policy())
        recording.place(each)
        found.append(recording.scores[0])
    assert found[1][:40] == pytest.approx(found[0][:40], rel=1e-3, abs=1e-5)
    assert found[1][[41, 40, 42]] == pytest.approx(found[0][[40, 41, 42]], rel=1e-3, abs=1e-5)


def taught_by(planner, book: TaskBook, other=None, part: float = 0.0) -> Taught:
    return Taught(planner, other, part, np.random.default_rng(0), book)


def test_choices_rebuild_the_planners_places():
    planner = graph_planners(SCENARIO, {TRUE: SCENARIO.world})["pod search that waits, true"]
    book = TaskBook()
    taught = taught_by(planner, book)
    jobs = SCENARIO.jobs(2)[:12]
    assert SCENARIO.completion_times(FIXED, taught, jobs).tolist() == (
        SCENARIO.completion_times(FIXED, planner, jobs).tolist()
    )
    placed = sum(job.max_workers + job.max_servers for job in jobs)
    assert sum(chosen < 40 for chosen in book.chosen) == placed
    assert all(task.allowed[chosen] for task, chosen in zip(book.tasks, book.chosen, strict=True))
    before = len(book.chosen)
    note(recorded(SCENARIO, network()).seen[0][0], type(recorded(SCENARIO, network()).seen[0][1])(), book)
    assert set(book.chosen[before:]) <= {42}  # a planner that places nothing lets all wait


class _Nothing:
    """A policy that places nothing, and counts how often it is asked."""

    asked = 0

    def place(self, view):
        self.asked += 1
        return Places()


def test_another_policy_decides_in_a_part_of_the_intervals_and_the_planner_teaches_in_all():
    planner = graph_planners(SCENARIO, {TRUE: SCENARIO.world})["pod search, true"]
    book, nothing = TaskBook(), _Nothing()
    taught = taught_by(planner, book, nothing, 0.9)
    jobs = SCENARIO.jobs(2)[:6]
    hindered = SCENARIO.completion_times(FIXED, taught, jobs)
    assert nothing.asked > 1
    placed = sum(chosen < 40 for chosen in book.chosen)
    assert placed > sum(job.max_workers + job.max_servers for job in jobs)  # some were taught twice
    assert (hindered > SCENARIO.completion_times(FIXED, planner, jobs)).any()


def test_first_lessons_are_of_every_cluster_and_repeat():
    scenario = replace(SCENARIO, workload=replace(SCENARIO.workload, jobs=3))
    planner = graph_planners(scenario, {TRUE: scenario.world})["patient pod search, true"]
    one, other = (first_lessons([scenario, scenario], FIXED, [planner] * 2, 2, 0.5) for _ in range(2))
    assert [book.chosen for book in one] == [book.chosen for book in other]
    assert one[0].chosen == one[1].chosen
    copied = one[0].copied()
    SCENARIO.completion_times(FIXED, taught_by(planner, copied), SCENARIO.jobs(0)[:2])
    assert len(copied.chosen) > len(one[0].chosen) == len(one[1].chosen)


def test_imitation_lowers_the_loss():
    planner = graph_planners(SCENARIO, {TRUE: SCENARIO.world})["pod search that waits, true"]
    book, net = TaskBook(), network()
    SCENARIO.completion_times(FIXED, taught_by(planner, book), SCENARIO.jobs(2)[:10])
    lessons = [(Wiring(cluster_graphs(SCENARIO.machines, SCENARIO.topology)), book.tensors())]
    assert fit_agents(net, lessons, 15, 0) < 0.7 * fit_agents(network(), lessons, 1, 0, rate=0.0)


def test_a_choice_is_worth_what_its_episode_cost_less_from_then_on():
    episodes = [np.array([4.0, 2.0]), np.array([6.0, 4.0, 1.0])]
    found = saved(episodes, [[0, 1], [0, 2]])
    padded = np.array([[4.0, 2.0, 0.0], [6.0, 4.0, 1.0]])
    less = padded.mean(axis=0) - padded
    assert found == pytest.approx(np.array([1.0, 1.0, -1.0, -0.5]) / np.sqrt((less**2).mean()))


def test_a_reward_counts_over_the_mean_of_its_jobs():
    found = over_own_mean(np.array([1.0, 3.0, 5.0, 5.0]), [7, 7, 2, 2])
    assert found == pytest.approx(np.array([-1.0, 1.0, 0.0, 0.0]) / np.sqrt(0.5), rel=1e-6)


def test_what_places_add_sums_up_to_all_progress():
    recording = recorded(SCENARIO, network(), 12)
    view, places = next((view, places) for view, places in recording.seen if len(places.groups) > 2)
    added = progress_added(SCENARIO, view, places)
    nothing = progress_after(SCENARIO, view, Places()).sum()
    assert set(added) == set(places.groups)
    assert sum(added.values()) == pytest.approx(progress_after(SCENARIO, view, places).sum() - nothing)


@pytest.mark.parametrize("reward", RewardKind)
def test_choices_are_rewarded_in_every_way(reward):
    net, gradient = network(), GradientSettings(sequences=1, episodes=2, batch=256, passes=1)
    scenario = replace(SCENARIO, workload=replace(SCENARIO.workload, jobs=4))
    before = network().policy().arrays
    improve_agents(net, torch.optim.Adam(net.parameters(), lr=1e-3), scenario, FIXED, gradient, 1, reward)
    after = net.policy().arrays
    assert all(np.isfinite(each).all() for each in after.values())
    assert any((after[name] != before[name]).any() for name in after)


def test_a_whole_run_ends_and_repeats():
    scenario = replace(SCENARIO, workload=replace(SCENARIO.workload, jobs=4))
    planner = graph_planners(scenario, {TRUE: scenario.world})["patient pod search, true"]
    lessons = first_lessons([scenario], FIXED, [planner], 1, 0.5)
    gradient = GradientSettings(sequences=1, episodes=2, batch=64, passes=1)
    settings = GraphSettings(1, 0.5, (0.5,), 1, 1, 1, 1, gradient)
    told: list[tuple[int, float]] = []
    kept: list[GraphAgents] = []
    first, second = (
        learn_agents([scenario], FIXED, [planner], lessons, settings, 5, lambda *each: told.append(each), kept.append)
        for _ in range(2)
    )
    assert [done for done, _ in told] == [0, 0, 1] * 2
    assert told[:3] == told[3:]
    assert kept[-1] is second
    assert all((first.arrays[name] == second.arrays[name]).all() for name in first.arrays)


def test_draws_follow_the_scores_odds():
    book = TaskBook()
    agents = SamplingAgents(network().policy(), SCENARIO, RewardKind.UNFINISHED, np.random.default_rng(0), book)
    SCENARIO.completion_times(FIXED, agents, SCENARIO.jobs(0)[:6])
    assert len(agents.logs) == len(agents.interval) == len(book.chosen)
    assert max(agents.logs) <= 0
    wiring = Wiring(cluster_graphs(SCENARIO.machines, SCENARIO.topology))
    net = network()
    with torch.no_grad():
        logs = torch.log_softmax(book.tensors().scores(net, wiring, torch.arange(len(book.chosen))), dim=1)
    drawn = logs[torch.arange(len(book.chosen)), torch.tensor(book.chosen)]
    assert drawn.numpy() == pytest.approx(np.array(agents.logs), rel=1e-3, abs=1e-4)
