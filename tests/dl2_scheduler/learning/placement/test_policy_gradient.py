"""Learning placement from rewards: what intervals cost, and PPO's step."""

import numpy as np
import pytest
import torch

from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.learning.placement.policy_gradient import (
    GradientSettings,
    PlacementExperience,
    costs,
    costs_to_go,
    improve,
)
from dl2_scheduler.policies.learnt.placer import group_width, job_width
from dl2_scheduler.sim.placed.scenario import Scenario

MODELS = 6


def network() -> PlacerNet:
    torch.manual_seed(0)
    return PlacerNet(MODELS)


def test_costs_of_intervals_sum_up_to_completion_times():
    scenario = Scenario.harmony(3.0)
    jobs = scenario.jobs(0)
    times = np.random.default_rng(0).uniform(0.3, 9.0, size=len(jobs))
    each = costs(jobs, times, scenario.workload.interval_seconds)
    assert each.sum() == pytest.approx(times.sum())
    assert (each >= 0).all()


def test_later_costs_count_less():
    assert costs_to_go(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]


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
