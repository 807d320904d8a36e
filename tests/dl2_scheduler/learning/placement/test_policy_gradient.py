"""Learning placement from rewards: what intervals cost, and what choices are worth."""

import numpy as np
import pytest
import torch

from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.learning.placement.policy_gradient import (
    GradientSettings,
    PlacementExperience,
    SamplingPlacer,
    costs,
    costs_to_go,
    gather,
    improve,
    worths,
)
from dl2_scheduler.policies.learnt.placer import group_width, job_width
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.scenario import Scenario

SCENARIO = Scenario.harmony(3.0)
MODELS = len(SCENARIO.profiles)


def network() -> PlacerNet:
    torch.manual_seed(0)
    net = PlacerNet(MODELS)
    torch.nn.init.constant_(net.rest.bias, -5.0)  # untrained, it would let everybody wait now and then
    return net


def test_costs_of_intervals_sum_up_to_completion_times():
    jobs = SCENARIO.jobs(0)
    times = np.random.default_rng(0).uniform(0.3, 9.0, size=len(jobs))
    each = costs(jobs, times, SCENARIO.workload.interval_seconds)
    assert each.sum() == pytest.approx(times.sum())
    assert (each >= 0).all()


def test_later_costs_count_less():
    assert costs_to_go(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]


def test_a_choice_is_worth_what_its_episode_saved_from_then_on():
    placers = [SamplingPlacer(network().policy(), 1200.0, np.random.default_rng(0)) for _ in range(2)]
    placers[0].interval, placers[1].interval = [0, 2], [0, 1]
    found = worths([np.array([5.0, 3.0, 1.0]), np.array([9.0, 3.0])], placers)
    saved = np.array([2.0, -0.5, -2.0, 0.0])  # the second episode was over before the third interval
    assert found == pytest.approx(saved / np.sqrt((4 + 0 + 0.25) * 2 / 6))


def test_an_episode_keeps_its_choices_and_the_same_seed_draws_the_same():
    settings = GradientSettings(sequences=1, episodes=2)
    found = [gather([SCENARIO], FixedDemand(), network().policy(), settings, seed=3) for _ in range(2)]
    assert found[0].chosen.tolist() == found[1].chosen.tolist()
    tasks = sum(job.max_workers + job.max_servers for job in SCENARIO.jobs(3))
    assert len(found[0].chosen) >= 2 * tasks  # a job that was dropped half way has drawn more than once
    allowed = found[0].allowed.gather(1, found[0].chosen[:, None])
    assert allowed.all()
    net = network()
    with torch.no_grad():
        logs = torch.log_softmax(net(found[0].groups, found[0].job, found[0].allowed), dim=1)
    assert torch.allclose(logs.gather(1, found[0].chosen[:, None])[:, 0], found[0].logs, atol=1e-4)


def test_choices_that_were_worth_more_become_likelier():
    net, rows = network(), 64
    rng = np.random.default_rng(0)
    groups = torch.from_numpy(rng.normal(size=(rows, 6, group_width(MODELS))).astype(np.float32))
    job = torch.from_numpy(rng.normal(size=(rows, job_width(MODELS))).astype(np.float32))
    allowed, chosen = torch.ones(rows, 7, dtype=torch.bool), torch.from_numpy(rng.integers(6, size=rows))

    def logs() -> torch.Tensor:
        with torch.no_grad():
            return torch.log_softmax(net(groups, job, allowed), dim=1).gather(1, chosen[:, None])[:, 0]

    before = logs()
    worth = torch.where(torch.arange(rows) % 2 == 0, 1.0, -1.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    settings = GradientSettings(passes=8, batch=rows)
    improve(net, optimizer, PlacementExperience(groups, job, allowed, chosen, before, worth), settings, seed=0)
    change = logs() - before
    assert change[worth > 0].mean() > 0.01
    assert change[worth < 0].mean() < -0.01
    assert change.abs().max() < 1.0  # clipped: what is far from where it was gains nothing more
