"""Harmony's own policy: its actions never leave half a job, its reward says how many jobs there are, and it learns."""

import numpy as np
import pytest
import torch

from dl2_scheduler.learning.placement.harmony.lessons import HarmonyChoices
from dl2_scheduler.learning.placement.harmony.network import HarmonyNet, HarmonyPlacer
from dl2_scheduler.learning.placement.harmony.run import HarmonyLearner, HarmonySettings, learn_harmony
from dl2_scheduler.learning.placement.harmony.tasks import PLACED, HarmonyLockstep
from dl2_scheduler.learning.placement.imitation import watch
from dl2_scheduler.learning.placement.judging import PlacementJudge
from dl2_scheduler.learning.placement.lockstep.clusters import RUNS
from dl2_scheduler.policies.placement.balance import LoadBalancing
from dl2_scheduler.policies.placement.greedy_fill import GreedyFill
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from tests.dl2_scheduler.learning.placement.fitted_world import fitted_scenario

SCENARIO = fitted_scenario()
MODELS, GROUPS = len(SCENARIO.profiles), len(SCENARIO.machines.sockets)


def network(seed: int = 0) -> HarmonyNet:
    torch.manual_seed(seed)
    return HarmonyNet(MODELS, GROUPS)


def begun(count: int) -> HarmonyLockstep:
    return HarmonyLockstep.begun(SCENARIO, [SCENARIO.jobs(number) for number in range(count)])


@pytest.mark.parametrize("seed", range(2))
def test_clusters_in_lockstep_say_what_the_simulator_says(seed):
    """There, `check_placement` refuses half a job and more than a server has."""
    net, lockstep = network(seed), begun(3)
    lockstep.run(lambda jobs, servers, allowed, _: net.best(jobs, servers, allowed))
    for number, times in enumerate(lockstep.times()):
        again = SCENARIO.completion_times(FixedDemand(), HarmonyPlacer(net), SCENARIO.jobs(number))
        assert times == pytest.approx(again, rel=1e-4)


def test_random_actions_leave_no_job_half_placed():
    rng, lockstep = np.random.default_rng(0), begun(8)
    clusters = lockstep.clusters

    def decide(jobs, servers, allowed, which):
        assert allowed.any(axis=1).all()
        assert allowed.shape[1] == 2 * PLACED * GROUPS
        whole = clusters.own.sum(axis=2)
        runs = clusters.phase == RUNS
        assert (whole[runs] == clusters.asked[runs]).all()
        assert (clusters.free > -1e-9).all()
        return np.array([rng.choice(np.flatnonzero(row)) for row in allowed])

    lockstep.run(decide)
    assert (lockstep.times() > 0).all()


@pytest.mark.parametrize("seed", range(2))
def test_the_papers_reward_sums_up_to_the_number_of_jobs(seed):
    """Whatever the policy does, so that only discounting makes speed pay."""
    net, lockstep = network(seed), begun(3)
    before = lockstep.progress()
    lockstep.run(lambda jobs, servers, allowed, _: net.best(jobs, servers, allowed))
    assert lockstep.progress() - before == pytest.approx(15.0)


def test_a_seed_learns_the_same():
    found = []
    for seed in (0, 0, 1):
        net = network()
        learner = HarmonyLearner([SCENARIO], net, HarmonySettings(workers=4, sampled=8, replay=100), seed)
        for update in range(25):  # until sequences have ended and others begun
            learner.update(update / 25)
        found.append(net.layers[0].weight.detach().numpy().copy())
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
    assert np.isfinite(found[0]).all()


@pytest.mark.parametrize("change", [{"value": False}, {"explore": 0.0}, {"replay": 0}])
def test_what_is_left_out_is_left_out(change):
    learner = HarmonyLearner([SCENARIO], network(), HarmonySettings(workers=4, sampled=8, **change), 0)
    for update in range(3):
        learner.update(update / 3)
    assert all(torch.isfinite(each).all() for each in learner.net.parameters())


def test_lessons_are_the_planners_places():
    planner, lessons, seen = GreedyFill(LoadBalancing()), HarmonyChoices(), []

    class Sees:
        def add(self, view, places):
            seen.append(sum(len(groups) for roles in places.groups.values() for groups in roles))

    watch([SCENARIO], planner, range(2), [lessons, Sees()])
    assert len(lessons.chosen) == sum(seen)
    assert all(allowed[chosen] for (_, _, allowed), chosen in zip(lessons.inputs, lessons.chosen, strict=True))


@pytest.mark.slow
def test_a_run_begins_with_lessons_and_keeps_the_best():
    planner, lessons = GreedyFill(LoadBalancing()), HarmonyChoices()
    watch([SCENARIO], planner, range(12), [lessons])
    judge = PlacementJudge([SCENARIO], planner, 3)
    settings = HarmonySettings(updates=4, workers=4, judged_every=2, epochs=60)
    told: dict[bool, list[float]] = {True: [], False: []}
    for taught, excess in told.items():
        learn_harmony(
            [SCENARIO],
            lessons if taught else None,
            judge,
            settings,
            tell=lambda line, excess=excess: excess.append(float(line.split(":")[1].strip(" %"))),
        )
    assert len(told[True]) == 3
    assert told[True][0] < told[False][0]
