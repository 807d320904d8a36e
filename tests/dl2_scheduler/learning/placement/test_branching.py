"""What choices are worth: copies of one state that draw, and what their jobs spend in the system afterwards."""

from itertools import product

import numpy as np
import pytest
import torch

from dl2_scheduler.learning.placement.branching import BranchSettings, Trunk
from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.learning.placement.lockstep_tasks import Lockstep
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings, improve
from tests.dl2_scheduler.learning.placement.fitted_world import fitted_scenario

SCENARIO = fitted_scenario()
MODELS = len(SCENARIO.profiles)
FEW = BranchSettings(states=4, branches=3, horizon=4)


def network(seed: int = 0) -> PlacerNet:
    torch.manual_seed(seed)
    net = PlacerNet(MODELS)
    torch.nn.init.constant_(net.rest.bias, -2.0)
    return net


def test_choices_are_kept_with_their_probabilities_and_worths():
    net = network()
    trunk = Trunk([SCENARIO, SCENARIO], FEW, 0)
    for _ in range(8):  # until sequences have ended and others begun
        found = trunk.grow(net.policy())
        assert found.allowed.gather(1, found.chosen[:, None]).all()
        with torch.no_grad():
            logs = torch.log_softmax(net(found.groups, found.job, found.allowed), dim=1)
        assert torch.allclose(logs.gather(1, found.chosen[:, None])[:, 0], found.logs, atol=1e-4)
        assert torch.isfinite(found.worth).all()


def test_a_seed_draws_the_same():
    found = [Trunk([SCENARIO], FEW, seed).grow(network().policy()) for seed in (1, 1, 2)]
    assert found[0].chosen.tolist() == found[1].chosen.tolist()
    assert found[0].worth.tolist() == found[1].worth.tolist()
    assert found[0].worth.tolist() != found[2].worth.tolist()


def exact(scenario, jobs) -> float:
    """Return the least mean completion time of two jobs that come together, over all places of their tasks."""
    lockstep = Lockstep.begun(scenario, [jobs])
    tasks = [int(count) for count in lockstep.clusters.asked[0].sum(axis=1)]
    groups = len(scenario.machines.sockets)
    every = np.array(list(product(range(groups), repeat=sum(tasks))))
    copies = lockstep.copies(np.zeros(len(every), dtype=np.int64))
    taken = np.zeros(len(every), dtype=np.int64)
    fits = np.ones(len(every), dtype=bool)

    def decide(groups, job, allowed, which):
        chosen = every[which, np.minimum(taken[which], every.shape[1] - 1)]
        ok = allowed[np.arange(len(which)), chosen]
        fits[which] &= ok
        taken[which] += 1
        return np.where(ok, chosen, allowed.argmax(axis=1))

    copies.run(decide)
    times = copies.times().mean(axis=1)
    return float(times[fits & (taken == sum(tasks))].min())


@pytest.mark.slow
def test_what_is_learnt_is_near_the_exact_optimum_of_tiny_clusters():
    """Three servers, two jobs that come together: within 5% of all places' best, in the mean of unseen sequences."""
    scenario = fitted_scenario(mean=4.0, jobs=2, servers=3)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    trunk = Trunk([scenario], BranchSettings(states=32, branches=16, horizon=5, stride=1), 100)
    for update in range(60):
        improve(net, optimizer, trunk.grow(net.policy()), GradientSettings(), update)
    together = [jobs for seed in range(40) if (jobs := scenario.jobs(seed))[1].arrival == jobs[0].arrival]
    small = [jobs for jobs in together if sum(job.max_workers + job.max_servers for job in jobs) <= 8][:6]
    lockstep, policy = Lockstep.begun(scenario, small), net.policy()
    lockstep.run(lambda groups, job, allowed, _: policy.best_of(groups, job, allowed))
    best = [exact(scenario, jobs) for jobs in small]
    excess = lockstep.times().mean(axis=1) / best - 1
    assert (excess > -0.001).all() or (excess.min() > -0.2)  # a job that waits may even be better than both at once
    assert excess.mean() < 0.05
