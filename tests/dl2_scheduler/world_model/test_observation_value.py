"""What it would be worth to know the speed in a configuration."""

from dataclasses import replace

import numpy as np
import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, SpeedReport
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.world_model import observation_value
from dl2_scheduler.world_model.observation_value import best_within, telling_configurations
from tests.dl2_scheduler.clusters import job, nodes, snapshot


def speeds(*reports):
    """Speeds that are fitted to what jobs of two types told, as (model, workers, servers, samples a second)."""
    fitted = FittedSpeeds()
    fitted.observe(SpeedReport(0, model, servers, workers, speed) for model, workers, servers, speed in reports)
    return fitted


EQUALS = [("even", count, count, 10.0 * count**0.7) for count in (1, 2, 3)]
ALL = [("even", workers, servers, 10.0 * min(workers, servers)) for workers in range(1, 5) for servers in range(1, 5)]


def present(*counts, model="even", cpus=12, **fields):
    states = [
        JobState(job(number, model=model, samples_per_epoch=2.0, **fields), 1.0, 1, *each)
        for number, each in enumerate(counts)
    ]
    return snapshot(states, nodes({"cpu": cpus}))


def found(seen, fitted, seed=0, given=None):
    given = given or Allocation({state.job.id: Grant(state.workers, state.servers) for state in seen.jobs})
    return telling_configurations(seen, given, fitted, NodeRule.SPREAD, np.random.default_rng(seed))


def at(configurations):
    return {(each.workers, each.servers) for each in configurations}


def test_what_nobody_has_tried_is_worth_trying_and_what_all_have_is_not():
    seen = present((2, 2), (2, 2))
    telling = found(seen, speeds(*EQUALS))
    assert telling
    assert at(telling).isdisjoint({(1, 1), (2, 2), (3, 3)})
    assert all(each.spread > 0.05 and each.gain > 0 for each in telling)
    assert found(seen, speeds(*ALL)) == []


def test_the_best_that_takes_no_more():
    random = np.random.default_rng(2)
    expected, shares = random.uniform(0, 9, (7, 5)), random.integers(0, 6, (7, 5)) / 3.0
    assert np.array_equal(best_within(expected, shares), [[expected[shares <= s].max() for s in row] for row in shares])


def test_a_search_ends_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr(observation_value, "_candidate", lambda *_: pytest.fail("there was no time"))
    seen, given = present((2, 2), (2, 2)), Allocation()
    assert telling_configurations(seen, given, speeds(*EQUALS), NodeRule.SPREAD, np.random.default_rng(0), -1.0) == []


def test_more_jobs_of_a_type_make_it_worth_more():
    few, many = (found(present(*[(2, 2)] * count, cpus=4 * count), speeds(*EQUALS)) for count in (1, 6))
    assert max(each.gain for each in many) > max(each.gain for each in few)


def test_only_what_a_running_job_could_have_beside_the_others():
    full = found(present((2, 2), (2, 2), cpus=8), speeds(*EQUALS))
    assert full
    assert all(workers + servers <= 4 for workers, servers in at(full))
    bounded = found(present((2, 2), max_workers=3, min_workers=2, max_servers=2), speeds(*EQUALS))
    assert all(2 <= workers <= 3 and servers <= 2 for workers, servers in at(bounded))


def test_a_job_that_has_more_than_it_may_have_now_is_compared_with_nothing():
    telling = found(present((2, 2), (2, 2), (5, 5), cpus=20), speeds(*EQUALS))
    assert telling
    assert all(each.speed_over(2, 2) is not None and each.speed_over(5, 5) is None for each in telling)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(present((0, 0)), id="nothing runs"),
        pytest.param(present((2, 2), model="flat"), id="its type has told nothing"),
        pytest.param(present(), id="there is no job"),
        pytest.param(
            present((2, 2), max_workers=2, max_servers=2, min_workers=2, min_servers=2),
            id="its owner leaves no choice",
        ),
    ],
)
def test_nothing_to_try(seen):
    assert found(seen, speeds(*EQUALS)) == []


def test_a_job_that_starts_is_not_scaled():
    seen = present((2, 2))
    starting = replace(seen, jobs=(replace(seen.jobs[0], starting=True),))
    assert found(starting, speeds(*EQUALS)) == []


def test_speeds_are_told_beside_those_that_jobs_have_now():
    seen, fitted = present((2, 2), (1, 2)), speeds(*EQUALS)
    each = found(seen, fitted)[0]
    grid = fitted.grid(seen.jobs[0].job)
    expected = grid[each.servers, each.workers]
    assert each.speed_over(2, 2) == pytest.approx(expected / grid[2, 2])
    assert each.speed_over(2, 1) == pytest.approx(expected / grid[2, 1])
    assert each.speed_over(4, 4) is None


def test_the_same_seed_finds_the_same():
    seen, fitted = present((2, 2), (3, 3)), speeds(*EQUALS)
    assert found(seen, fitted, 1) == found(seen, fitted, 1) != found(seen, fitted, 2)


def test_time_that_is_over_ends_the_search():
    given = Allocation({0: Grant(2, 2)})
    none = telling_configurations(
        present((2, 2)), given, speeds(*EQUALS), NodeRule.SPREAD, np.random.default_rng(0), -1
    )
    assert none == []


def test_trying_what_is_told_makes_the_next_one_worth_less():
    """Its speed is what was expected, so that nothing is left to be found out there."""
    seen, fitted = present((2, 2), (2, 2)), speeds(*EQUALS)
    best = max(found(seen, fitted), key=lambda each: each.gain)
    told = float(fitted.grid(seen.jobs[0].job)[best.servers, best.workers])
    fitted.observe([SpeedReport(0, "even", best.servers, best.workers, told)])
    assert (best.workers, best.servers) not in at(found(seen, fitted))
