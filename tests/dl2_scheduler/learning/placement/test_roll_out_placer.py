"""Looking ahead: what is rolled out is what the simulator would do, and what is chosen so is better."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep
from dl2_scheduler.learning.placement.lockstep.view import cluster_of
from dl2_scheduler.learning.placement.roll_out_placer import RollOutPlacer, RollOutSettings
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.policies.placement.greedy_fill import JobOrder
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from tests.dl2_scheduler.learning.placement.fitted_world import fitted_scenario

SCENARIO = fitted_scenario()
FEW = RollOutSettings(ways=8, futures=2)


def policy(seed: int = 0) -> LearntPlacer:
    torch.manual_seed(seed)
    net = PlacerNet(len(SCENARIO.profiles))
    torch.nn.init.constant_(net.rest.bias, -0.2)
    return net.policy()


class Noting:
    """It keeps the views that a policy gets, and what it answers."""

    def __init__(self, decides):
        self.decides, self.seen = decides, []

    def place(self, view):
        places = self.decides.place(view)
        self.seen.append((view, places))
        return places


def mean_time(decides) -> float:
    times = [SCENARIO.completion_times(FixedDemand(), decides, SCENARIO.jobs(seed)).mean() for seed in range(4)]
    return float(np.mean(times))


def test_a_view_goes_on_in_lockstep_as_in_the_simulator():
    decides, jobs = policy(), SCENARIO.jobs(0)
    noting = Noting(decides)
    times = SCENARIO.completion_times(FixedDemand(), noting, jobs)
    all_come = jobs[-1].arrival / SCENARIO.workload.interval_seconds
    number = next(number for number in range(len(noting.seen)) if number >= all_come)
    view = noting.seen[number][0]
    assert len(view.placed.job)  # some run, some are to be placed
    assert view.missing.any()
    lockstep = Lockstep(SCENARIO, cluster_of(view, JobOrder.SHORTEST))
    lockstep.choose(np.array([-1]))
    lockstep.run(lambda groups, job, allowed, _: decides.best_of(groups, job, allowed))
    for job, finish in zip(view.jobs, lockstep.clusters.finish[0], strict=True):
        place = next(place for place, each in enumerate(jobs) if each.id == job.job.id)
        assert finish + number == pytest.approx(
            times[place] + jobs[place].arrival / SCENARIO.workload.interval_seconds, rel=1e-3
        )


def test_looking_ahead_is_better_than_the_policy_that_it_asks():
    settings = RollOutSettings(ways=32, futures=4)
    assert mean_time(RollOutPlacer(policy(2), [SCENARIO], settings)) < 0.97 * mean_time(policy(2))


def test_one_way_is_the_policys_own():
    alone, noting = policy(), Noting(RollOutPlacer(policy(), [SCENARIO], replace(FEW, ways=1)))
    mean_time(noting)
    assert all(places == alone.place(view) for view, places in noting.seen)


def test_the_same_view_gets_the_same_places():
    ahead = RollOutPlacer(policy(), [SCENARIO], FEW)
    noting = Noting(ahead)
    SCENARIO.completion_times(FixedDemand(), noting, SCENARIO.jobs(1))
    other = RollOutPlacer(policy(), [SCENARIO], FEW)
    for view, places in noting.seen:
        assert other.place(view) == places


def test_what_no_cluster_in_lockstep_is_the_policy_decides_alone():
    """A job that grows, say: in lockstep jobs have fixed counts."""
    noting = Noting(policy())
    SCENARIO.completion_times(FixedDemand(), noting, SCENARIO.jobs(0))
    view = next(view for view, _ in noting.seen if len(view.placed.job) and view.missing.any())
    missing = view.missing.copy()
    missing[view.placed.job[0]] = 0, 1
    grows = replace(view, missing=missing)
    assert RollOutPlacer(policy(), [SCENARIO], FEW).place(grows) == policy().place(grows)


def test_in_another_cluster_the_policy_decides_alone():
    noting = Noting(RollOutPlacer(policy(), [fitted_scenario(servers=5)], FEW))
    SCENARIO.completion_times(FixedDemand(), noting, SCENARIO.jobs(0))
    assert all(places == policy().place(view) for view, places in noting.seen)
