"""Rules that events wake: the contract, by hand, and beside the best of all plans."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PolicyTrigger, trigger_of
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.policies.pool.at_events import AtEvents, OptimusPairs
from dl2_scheduler.policies.pool.roll_forward import cost_of, fill_greedily, planned
from dl2_scheduler.policies.pool.roll_out import RollOut
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.optimus import Optimus
from dl2_scheduler.sim.events.worlds import formula
from tests.dl2_scheduler import clusters
from tests.dl2_scheduler.clusters import SPEEDS, counts, job, nodes, snapshot, snapshots
from tests.dl2_scheduler.policies.pool.enumeration import best_plan
from tests.dl2_scheduler.policies.test_policies import PLACEMENTS, decide
from tests.sweeps import examples

MAKE = {
    "pairs": lambda: AtEvents(OptimusPairs(TrueSpeeds(SPEEDS))),
    "roll-out": lambda: RollOut(TrueSpeeds(SPEEDS)),
    "roll-out in pairs": lambda: RollOut(TrueSpeeds(SPEEDS), pairs=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
@settings(deadline=None, max_examples=examples(40))
@given(data=st.data(), asked=PLACEMENTS)
def test_contract(name: str, data: st.DataObject, asked: NodeRule) -> None:
    for now in data.draw(st.lists(snapshots(gangs=True), min_size=1, max_size=2)):
        assert decide(MAKE[name](), now, asked) == decide(MAKE[name](), now, asked)


@pytest.mark.parametrize("name", MAKE)
def test_they_are_asked_at_events(name: str) -> None:
    assert trigger_of(MAKE[name]()) is PolicyTrigger.EVENT
    assert decide(MAKE[name](), snapshot([], nodes({"cpu": 8})), NodeRule.SPREAD) == {}


def test_pairs_climb_while_a_pair_is_a_gain() -> None:
    # twice the epochs gain twice as many seconds by each pair
    now = snapshot([job(1, epochs=100.0), job(2, epochs=400.0)], nodes({"cpu": 10}))
    assert clusters.given(MAKE["pairs"](), now) == {1: (2, 2), 2: (3, 3)}
    now = snapshot([job(1, model="flat")], nodes({"cpu": 10}))
    assert clusters.given(MAKE["pairs"](), now) == {1: (1, 1)}


def _states(seed: int, count: int) -> Snapshot:
    world = formula()
    return snapshot(world.jobs(seed, 2.7, count), world.nodes)


def _plan(policy: AllocationPolicy, now: Snapshot) -> dict[int | str, tuple[int, int]]:
    return counts(policy.allocate(now, FreeResources(now)))


def test_the_greedy_fill_gives_optimuss_workers_where_servers_suit() -> None:
    speeds = formula().speeds
    for seed in range(5):
        now = _states(seed, 3)
        curves = np.array([speeds.grid(each.job.model).max(axis=0) for each in now.jobs])
        left = np.array([each.job.epochs * 32 for each in now.jobs])
        found = np.zeros(3, dtype=np.int64)
        fill_greedily(left, curves, 10, found)
        wanted = [workers for workers, _ in _plan(Optimus(TrueSpeeds(speeds)), now).values()]
        assert found == pytest.approx(np.array(wanted), abs=1)
        assert found.sum() == sum(wanted) == 10


def test_the_cost_by_hand() -> None:
    curves = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    left = np.array([10.0, 40.0])
    # one unit each: the first ends at 10, the second has 30 left and both units: 15 more
    assert cost_of(left, curves, 2, np.array([1, 1])) == pytest.approx(10 + 25)
    # the first alone: it ends at 5, then the second needs 20
    assert cost_of(left, curves, 2, np.array([2, 0])) == pytest.approx(5 + 25)
    assert planned(left, curves, 2).tolist() == [2, 0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_within_two_percent_of_the_best_plan_of_three_jobs(seed: int) -> None:
    """Exact enumeration: whatever each job has until each end, of all splits of ten GPUs."""
    now, speeds = _states(seed, 3), formula().speeds
    curves = np.array([speeds.grid(each.job.model).max(axis=0) for each in now.jobs])
    left = np.array([each.job.epochs * 32 for each in now.jobs])
    best = best_plan(left, curves, 10)
    plan = planned(left, curves, 10)
    assert cost_of(left, curves, 10, plan) <= best * 1.02
