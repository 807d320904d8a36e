"""Speeds that deviate from their models'."""

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.bound import hard_bound
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.variation import NO_VARIATION, Variation
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes


def test_factors_are_even_and_of_their_seed() -> None:
    factors = Variation(0.4, seed=3).factors(4000)
    assert (factors.min(), factors.max()) == pytest.approx((0.6, 1.4), abs=0.01)
    assert factors.mean() == pytest.approx(1.0, abs=0.02)
    assert np.array_equal(factors[:7], Variation(0.4, seed=3).factors(7))
    assert np.array_equal(Variation(0.4, seed=1).of_sequence(2).factors(7), factors[:7])
    assert not np.array_equal(Variation(0.4, seed=4).factors(7), factors[:7])
    assert set(NO_VARIATION.factors(5)) == {1.0}


def test_a_job_reports_its_own_speed() -> None:
    variation = Variation(0.5, seed=1)
    early, late = variation.factors(2)
    jobs = [job(2, arrival=10.0, epochs=900.0), job(1, epochs=900.0)]
    cluster = SimulatedCluster(jobs, nodes({"cpu": 8}), SPEEDS, 100.0, variation=variation)
    cluster.finish_slot()
    cluster.apply(Allocation({1: Grant(2, 2), 2: Grant(1, 1)}))
    outcome = cluster.finish_slot()
    assert {each.job: each.samples_per_second for each in outcome.reports} == pytest.approx({1: 2 * early, 2: late})
    assert {each.id: each.epochs for each in outcome.jobs} == pytest.approx({1: 200 * early, 2: 100 * late})


def test_the_same_work_at_the_models_speed() -> None:
    variation = Variation(0.5, seed=1)
    machines = nodes({"cpu": 2})
    jobs = [job(2, arrival=10.0), job(1, max_workers=1, max_servers=1)]
    same = variation.as_work(jobs)
    assert [each.id for each in same] == [1, 2]
    assert hard_bound(same[:1], machines, SPEEDS, 100.0) == pytest.approx(1 / variation.factors(1)[0])
    assert variation.as_work(jobs) == same


def test_it_takes_as_long() -> None:
    """By a policy that looks at no speeds."""
    variation, machines = Variation(0.4, seed=2), nodes({"cpu": 8}, {"cpu": 4})
    jobs = [job(number, arrival=70.0 * (number % 3), epochs=400.0) for number in range(6)]
    varied = run(SimulatedCluster(jobs, machines, SPEEDS, 100.0, variation=variation), Drf(), NodeRule.SPREAD)
    assert varied == pytest.approx(
        run(SimulatedCluster(variation.as_work(jobs), machines, SPEEDS, 100.0), Drf(), NodeRule.SPREAD)
    )
    assert varied != pytest.approx(run(SimulatedCluster(jobs, machines, SPEEDS, 100.0), Drf(), NodeRule.SPREAD))


@pytest.mark.parametrize(
    ("part", "seed", "reason"),
    [
        (1.0, 0, "speed variation 1.0: give a part, from 0 to less than 1"),
        (-0.1, 0, "speed variation -0.1"),
        (float("nan"), 0, "speed variation nan"),
        (0.1, -1, "seed -1 of the speed variation"),
    ],
)
def test_what_cannot_be(part: float, seed: int, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Variation(part, seed)
