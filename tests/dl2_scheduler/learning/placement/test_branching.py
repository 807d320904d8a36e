"""What choices are worth: copies of one state that draw, and what their jobs spend in the system afterwards."""

from itertools import product

import numpy as np
import pytest
import torch

from dl2_scheduler.learning.placement.branching import BranchSettings, Trunk
from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep
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
    """Return the least mean completion time of two jobs that come together, over all that a policy can decide.

    That is every place of every task, for the second job in each of the next intervals.
    """
    lockstep = Lockstep.begun(scenario, [jobs])
    first, second = (int(count) for count in lockstep.clusters.asked[0, lockstep.clusters.order[0]].sum(axis=1))
    waits = len(scenario.machines.sockets)  # as a choice
    places = [list(product(range(waits), repeat=count)) for count in (first, second)]
    found = [np.inf]
    for intervals in range(5):
        plans = np.array([(*one, *[waits] * intervals, *other) for one in places[0] for other in places[1]])
        found.append(_least_of(lockstep.copies(np.zeros(len(plans), dtype=np.int64)), plans))
    return min(found)


def _least_of(copies: Lockstep, plans: np.ndarray) -> float:
    """Return the least mean completion time of clusters whose choices are known, of those that may choose so."""
    taken = np.zeros(len(plans), dtype=np.int64)
    possible = np.ones(len(plans), dtype=bool)

    def decide(groups, job, allowed, which):
        chosen = plans[which, np.minimum(taken[which], plans.shape[1] - 1)]
        ok = allowed[np.arange(len(which)), chosen]
        possible[which] &= ok
        taken[which] += 1
        return np.where(ok, chosen, allowed.argmax(axis=1))

    copies.run(decide)
    ends = copies.times().mean(axis=1)[possible & (taken == plans.shape[1])]
    return float(ends.min(initial=np.inf))


def over_exact(scenario, sequences, best: list[float], net: PlacerNet) -> np.ndarray:
    """Return the parts by which a network's mean completion times lie over the exact ones, (sequences,)."""
    lockstep, policy = Lockstep.begun(scenario, sequences), net.policy()
    lockstep.run(lambda groups, job, allowed, _: policy.best_of(groups, job, allowed))
    return lockstep.times().mean(axis=1) / best - 1


@pytest.mark.slow
def test_what_is_learnt_is_near_the_exact_optimum_of_tiny_clusters():
    """Three servers, two jobs that come together: within 2% of the best, in the mean of unseen sequences."""
    scenario = fitted_scenario(mean=4.0, jobs=2, servers=3)
    together = [jobs for seed in range(60) if (jobs := scenario.jobs(seed))[1].arrival == jobs[0].arrival]
    small = [jobs for jobs in together if sum(job.max_workers + job.max_servers for job in jobs) <= 8][:12]
    best = [exact(scenario, jobs) for jobs in small]
    net = network()
    untrained = over_exact(scenario, small, best, net)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    trunk = Trunk([scenario], BranchSettings(states=32, branches=16, horizon=5, stride=1), 100)
    for update in range(60):
        improve(net, optimizer, trunk.grow(net.policy()), GradientSettings(), update)
    learnt = over_exact(scenario, small, best, net)
    assert (untrained > -1e-9).all()
    assert (learnt > -1e-9).all()  # `exact` can do whatever a policy can
    assert untrained.mean() > 0.04  # else this test would show nothing
    assert learnt.mean() < 0.02
