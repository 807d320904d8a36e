"""A whole run in small: it imitates, learns, keeps the best, and a seed gives the same."""

import numpy as np
import pytest

from dl2_scheduler.learning.placement.branching import BranchSettings
from dl2_scheduler.learning.placement.imitation import Choices, watch
from dl2_scheduler.learning.placement.judging import PlacementJudge
from dl2_scheduler.learning.placement.placer_run import PlacerSettings, learn_placer
from dl2_scheduler.policies.placement.balance import LoadBalancing
from dl2_scheduler.policies.placement.local_search import LocalSearch
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from tests.dl2_scheduler.learning.placement.fitted_world import fitted_scenario

SCENARIO = fitted_scenario()
FEW = BranchSettings(states=4, branches=4, horizon=4)
SMALL = PlacerSettings(epochs=5, updates=2, judged_every=1, branching=FEW)


@pytest.mark.slow
def test_a_run_keeps_the_policy_that_was_judged_best():
    planner = LocalSearch(SCENARIO.world, [LoadBalancing()])
    judge, lessons = PlacementJudge([SCENARIO], planner, 2), Choices()
    watch([SCENARIO], planner, range(3), [lessons])
    told: dict[int, float] = {}
    kept: list = []
    learnt = learn_placer([SCENARIO], lessons, judge, SMALL, seed=1, tell=told.__setitem__, keep=kept.append)
    again = learn_placer([SCENARIO], lessons, judge, SMALL, seed=1)
    other = learn_placer([SCENARIO], lessons, judge, SMALL, seed=2)
    assert kept[-1] is learnt
    assert list(told) == [0, 1, 2]
    jobs = [SCENARIO.jobs(2_000_000 + number) for number in range(2)]
    ratio = np.mean(
        [
            SCENARIO.completion_times(FixedDemand(), learnt, each).mean()
            / SCENARIO.completion_times(FixedDemand(), planner, each).mean()
            for each in jobs
        ]
    )
    assert ratio - 1 == pytest.approx(min(told.values()))
    for name, array in learnt.arrays.items():
        assert (array == again.arrays[name]).all()
    assert any((array != other.arrays[name]).any() for name, array in learnt.arrays.items())
