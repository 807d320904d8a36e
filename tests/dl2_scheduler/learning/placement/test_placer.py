"""The learnt placement policy: the contract, what it reads, that numbers are the network's, and that it imitates."""

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.figures.placement.contenders import SHORTEST, contenders
from dl2_scheduler.learning.placement.imitation import Choices, PlacerNet, fit_choices, watch
from dl2_scheduler.policies.learnt.placer import PlacerInputs, TaskReader, group_width, job_width
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.scenario import Scenario

SCENARIO = Scenario.harmony(3.0)
MODELS = len(SCENARIO.profiles)
POLICIES = contenders(SCENARIO)
FIXED = FixedDemand()


class Watching:
    """A policy that lets another one decide, and keeps what it saw."""

    def __init__(self, policy):
        self.policy, self.views = policy, []

    def place(self, view):
        self.views.append(view)
        return self.policy.place(view)


def views(seed: int = 0) -> list:
    watching = Watching(POLICIES["load balancing"])
    SCENARIO.completion_times(FIXED, watching, SCENARIO.jobs(seed)[:20])
    return [view for view in watching.views if view.missing.any()]


def network(seed: int = 0) -> PlacerNet:
    torch.manual_seed(seed)
    return PlacerNet(MODELS)


def test_the_policys_numbers_are_the_networks():
    net = network()
    view = views()[-1]
    job = int(view.missing.any(axis=1).nonzero()[0][0])
    inputs = TaskReader(Draft(view)).inputs(job, 0, [])
    assert inputs.groups.shape == (6, group_width(MODELS))
    assert inputs.job.shape == (job_width(MODELS),)
    rows = (torch.from_numpy(each[None]) for each in (inputs.groups, inputs.job, np.ones_like(inputs.allowed)))
    assert net.policy().scores(inputs) == pytest.approx(net(*rows)[0].detach().numpy(), rel=1e-4, abs=1e-6)


def test_inputs_tell_own_tasks_from_others():
    view = views()[-1]
    job = int(view.missing.any(axis=1).nonzero()[0][0])
    draft = Draft(view)
    before = TaskReader(draft).inputs(job, 1, [])
    group = int(draft.fitting(job, 0)[0])
    draft.put(job, 0, group)
    after = TaskReader(draft).inputs(job, 1, [])
    change = after.groups - before.groups
    assert change[group, 4 * MODELS] == 1
    assert not np.delete(change, group, axis=0).any()
    assert before.allowed[-1]
    assert not after.allowed[-1]  # a job that has a place does not wait any more


def test_groups_in_another_order_get_the_same_scores():
    net, view = network().policy(), views()[-1]
    inputs = TaskReader(Draft(view)).inputs(int(view.missing.any(axis=1).nonzero()[0][0]), 0, [])
    order = np.array([3, 1, 5, 0, 2, 4])
    moved = PlacerInputs(inputs.groups[order], inputs.job, inputs.allowed[np.append(order, 6)])
    assert net.scores(moved) == pytest.approx(net.scores(inputs)[np.append(order, 6)], rel=1e-4, abs=1e-6)


def test_a_job_waits_where_waiting_scores_best_or_nothing_fits():
    policy = network().policy()
    always = {**policy.arrays, "rest.bias": np.array([100.0], dtype=np.float32)}
    never = {**policy.arrays, "rest.bias": np.array([-100.0], dtype=np.float32)}
    view = views()[-1]
    assert len(view.placed.job)
    assert type(policy)(always).place(view).groups == {}
    placed = type(policy)(never).place(view)
    assert placed.groups
    check_placement(view, placed)


def test_nobody_waits_in_an_empty_cluster():
    policy = network().policy()
    always = type(policy)({**policy.arrays, "rest.bias": np.array([100.0], dtype=np.float32)})
    view = views()[0]
    assert not len(view.placed.job)
    assert len(always.place(view).groups) == 1  # then something runs, and the others wait
    assert (SCENARIO.completion_times(FIXED, always, SCENARIO.jobs(0)[:6]) > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_any_weights_keep_the_contract(seed):
    """The cluster refuses what breaks it, and all jobs end."""
    policy = network(seed).policy()
    jobs = SCENARIO.jobs(seed)[:15]
    times = [SCENARIO.completion_times(FIXED, policy, jobs) for _ in range(2)]
    assert (times[0] > 0).all()
    assert times[0].tolist() == times[1].tolist()


def test_choices_rebuild_the_teachers_places():
    """Each choice is allowed where it is made, and together they put all tasks where the teacher has them."""
    teacher = POLICIES["local search that waits, true"]
    for view in views(1):
        choices, places = Choices(), teacher.place(view)
        choices.add(view, places)
        assert all(inputs.allowed[chosen] for inputs, chosen in zip(choices.inputs, choices.chosen, strict=True))
        tasks = sum(len(groups) for roles in places.groups.values() for groups in roles)
        assert sum(chosen < 6 for chosen in choices.chosen) == tasks


@pytest.mark.slow
def test_a_policy_that_imitates_places_better_than_the_rules():
    teacher, choices = POLICIES["local search, true"], Choices()
    watch([SCENARIO], teacher, range(8), [choices])
    net = network()
    assert fit_choices(net, choices, epochs=15, seed=0) < 1.2
    ours, rule = (
        np.mean([SCENARIO.completion_times(FIXED, policy, SCENARIO.jobs(seed)).mean() for seed in range(100, 104)])
        for policy in (net.policy(), POLICIES["load balancing" + SHORTEST])
    )
    assert ours < 0.9 * rule
