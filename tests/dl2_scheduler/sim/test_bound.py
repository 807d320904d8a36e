"""Bounds: by hand, under every policy, the same with and without pruning, and beside the published ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput, Starved
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.sim.bound import hard_bound, lp_bound
from dl2_scheduler.sim.configurations import Configurations, alone, configurations
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from tests.dl2_scheduler.clusters import SPEEDS, grid, job, nodes
from tests.dl2_scheduler.peers import machines, needs_data, sequence, table
from tests.sweeps import examples

SLOT = 100.0
ONE = Speeds({"even": grid({(1, 1): 1.0}, most=1)})
AMOUNT = st.sampled_from([0, 1, 2])
DEMAND = st.fixed_dictionaries({"cpu": st.sampled_from([1, 2]), "gpu": AMOUNT})
JOBS = st.lists(
    st.builds(
        job,
        arrival=st.sampled_from([0.0, 30.0, SLOT, 260.0]),
        model=st.sampled_from(SPEEDS.models),
        epochs=st.floats(5, 600),
        worker=DEMAND,
        server=DEMAND,
        max_workers=st.integers(1, 4),
        max_servers=st.integers(1, 4),
    ),
    min_size=1,
    max_size=4,
).map(lambda jobs: [replace(each, id=number) for number, each in enumerate(jobs)])
NODES = st.sampled_from([nodes({"cpu": 4, "gpu": 4}), nodes({"cpu": 6, "gpu": 4}, {"cpu": 9, "gpu": 8})])


def single(number: int, **fields: object) -> Job:
    """One worker and one server at most, two cpu, 1 sample a second."""
    return job(number, max_workers=1, max_servers=1, **fields)


def test_a_job_alone() -> None:
    """It waits 70 s for the slot, and then trains 250 s."""
    jobs = [single(1, arrival=30.0, epochs=250.0)]
    assert hard_bound(jobs, nodes({"cpu": 2}), ONE, SLOT) == pytest.approx(3.2)
    assert lp_bound(jobs, nodes({"cpu": 2}), ONE, SLOT) == pytest.approx(3.2)


def test_alone_is_in_the_fastest_configuration_that_fits() -> None:
    """8 cpu hold 4 of each, which train 4 samples a second; 5 hold 2 of each."""
    jobs = [job(epochs=400.0)]
    assert hard_bound(jobs, nodes({"cpu": 4}, {"cpu": 4}), SPEEDS, SLOT) == pytest.approx(1.0)
    assert hard_bound(jobs, nodes({"cpu": 5}), SPEEDS, SLOT) == pytest.approx(2.0)


def test_two_jobs_on_a_cluster_for_one() -> None:
    """Two slots of work each. All work is in the slots 0 to 3, whose middles are 2 on average; a job ends d/2 = 1 after
    the mean of its own, less 1/(8d) = 1/16 for a last slot that may be idle in part.
    """
    jobs = [single(1, epochs=200.0), single(2, epochs=200.0)]
    assert hard_bound(jobs, nodes({"cpu": 2}), ONE, SLOT) == pytest.approx(2.0)
    assert lp_bound(jobs, nodes({"cpu": 2}), ONE, SLOT) == pytest.approx(2 + 1 - 1 / 16)


@settings(deadline=None, max_examples=examples(25))
@given(JOBS, NODES)
def test_no_policy_is_under_the_bounds(jobs: list[Job], cluster: tuple[Node, ...]) -> None:
    hard, lp = hard_bound(jobs, cluster, SPEEDS, SLOT), lp_bound(jobs, cluster, SPEEDS, SLOT)
    assert hard <= lp + 1e-6
    for name in ("drf", "srtf-true", "planner-true"):
        policy = make_policy(name, SPEEDS)
        try:
            reached = run(
                SimulatedCluster(jobs, cluster, SPEEDS, SLOT), policy, NodeRule.SPREAD, most_slots=2000
            ).mean()
        except Starved:
            assert name == "drf", "who is told the speeds gives no counts with which a model does not run"
            continue
        assert reached >= lp - 1e-6


@settings(deadline=None, max_examples=examples(25))
@given(JOBS, NODES)
def test_pruning_is_exact(jobs: list[Job], cluster: tuple[Node, ...]) -> None:
    pruned = lp_bound(jobs, cluster, SPEEDS, SLOT)
    assert pruned == pytest.approx(lp_bound(jobs, cluster, SPEEDS, SLOT, prune=False), rel=1e-6)


def test_what_is_pruned() -> None:
    """The second is slower than the first and takes no less. A mixture of the first and the fourth undercuts the third:
    for the same work half of either takes 0.75 of a slot and of one resource, the third 0.8."""
    ways = Configurations(np.array([1.0, 0.9, 1.25, 2.0]), np.array([[0.4], [0.5], [1.0], [2.2]]))
    assert ways.efficient() == [0, 3]


def test_a_slow_configuration_hides_no_other() -> None:
    """One that takes a million times as long is no measure for what the others differ in."""
    ways = Configurations(np.array([1e-6, 1.0, 1.5]), np.array([[1.0], [1.0], [2.0]]))
    assert ways.efficient() == [1, 2]


def test_as_many_slots_are_looked_at_as_are_needed() -> None:
    """Twelve jobs, each of which takes the cluster for a slot. The first slots to be looked at are eight."""
    jobs = [single(number, epochs=100.0) for number in range(12)]
    assert lp_bound(jobs, nodes({"cpu": 2}), ONE, SLOT) == pytest.approx(12 / 2 + 1 / 2 - 1 / 8)


def test_a_job_that_no_configuration_fits() -> None:
    with pytest.raises(BadInput, match="job 1: all nodes together hold no worker and server of it"):
        lp_bound([single(1)], nodes({"cpu": 1}), ONE, SLOT)


def test_times_alone_are_from_the_arrival() -> None:
    jobs = [single(1, arrival=250.0, epochs=50.0), single(2, arrival=300.0, epochs=50.0)]
    ways = [configurations(each, nodes({"cpu": 2}), ONE, SLOT) for each in jobs]
    assert alone(jobs, ways, SLOT).times == pytest.approx([1.0, 0.5])


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(("size", "above"), [(24, 0.004), (48, 0.0015)])
def test_beside_the_published_bounds(size: int, above: float) -> None:
    """The published linear program is looser by up to 0.4%; the bound of jobs alone is the same."""
    jobs, published = sequence(size, 1)
    assert hard_bound(jobs, machines(size), table()) == pytest.approx(published["hard_bound"], abs=1e-4)
    ours = lp_bound(jobs, machines(size), table())
    assert published["lp_bound"] <= ours <= (1 + above) * published["lp_bound"]
