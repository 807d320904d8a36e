"""The simulated cluster of events: triggers, by hand; as the limit of fine slots; the worlds of Chic."""

from dataclasses import dataclass

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import Starved
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PolicyTrigger, trigger_of
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.optimus import Optimus
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.sim.events.cluster import EventCluster, completion_times
from dl2_scheduler.sim.events.worlds import MODELS, POOL, formula, table
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from tests.dl2_scheduler.clusters import job, nodes

SPEEDS = Speeds({"linear": np.outer([0, 1, 1, 1, 1], [0, 1.0, 2.0, 3.0, 4.0])})


@dataclass
class OneWorkerEach:
    """Gives each job one worker and one server, while there is room; notes when it was asked."""

    trigger: PolicyTrigger = PolicyTrigger.EVENT

    def __post_init__(self):
        self.asked: list[int] = []

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        self.asked.append(len(snapshot.jobs))
        for number in range(len(snapshot.jobs)):
            room.give(number, 1, 1)
        return room.allocation()


def _job(number: int, arrival: float, epochs: float):
    return job(number, arrival=float(arrival), model="linear", epochs=float(epochs))


def _times(policy: AllocationPolicy, *jobs, slot: float = 100.0) -> list[float]:
    return completion_times(jobs, nodes({"cpu": 4}), SPEEDS, policy, slot).tolist()


def test_a_policy_without_a_trigger_is_asked_at_slots():
    assert trigger_of(Optimus(TrueSpeeds(SPEEDS))) is PolicyTrigger.SLOT
    assert trigger_of(OneWorkerEach()) is PolicyTrigger.EVENT


def test_woken_by_events_a_job_begins_when_it_arrives_and_when_another_makes_room():
    # two jobs fit at once; the third begins when the first has ended
    policy = OneWorkerEach()
    assert _times(policy, _job(1, 10, 50), _job(2, 20, 500), _job(3, 30, 40)) == pytest.approx([50, 500, 70])
    assert policy.asked == [1, 2, 3, 2, 1]


def test_woken_by_slots_a_job_waits_for_the_next_and_its_resources_wait_for_it():
    policy = OneWorkerEach(PolicyTrigger.SLOT)
    assert _times(policy, _job(1, 10, 50), _job(2, 20, 500), _job(3, 30, 40)) == pytest.approx([140, 580, 210])
    assert policy.asked == [3, 2, 1, 1, 1]


def test_a_job_stands_still_as_long_as_its_start_and_its_changes_cost():
    class ThreeAlone:
        trigger = PolicyTrigger.EVENT

        def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
            for number in range(len(snapshot.jobs)):
                room.give(number, 3 if len(snapshot.jobs) == 1 else 1, 1)
            return room.allocation()

    jobs, cost = [_job(1, 0, 100), _job(2, 30, 20)], ScalingCost(start=10.0, change=4.0)
    times = completion_times(jobs, nodes({"cpu": 4}), SPEEDS, ThreeAlone(), 100.0, cost)
    # 1: 60 epochs from 10 to 30, 26 from 34 to 60, when 2, which began at 40, ends; the other 14 from 64 on
    assert times.tolist() == pytest.approx([64 + 14 / 3, 30])


def test_a_policy_that_runs_nothing_is_told_so():
    class Nothing:
        trigger = PolicyTrigger.EVENT

        def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
            return Allocation()

    with pytest.raises(Starved, match="none will arrive"):
        _times(Nothing(), _job(1, 10, 50))


def test_reports_and_outcomes_tell_what_was_trained():
    cluster = EventCluster([_job(1, 0, 50), _job(2, 20, 500)], nodes({"cpu": 4}), SPEEDS, PolicyTrigger.EVENT)
    snapshot = cluster.snapshot()
    cluster.apply(OneWorkerEach().allocate(snapshot, FreeResources(snapshot, NodeRule.SPREAD)))
    outcome = cluster.finish_slot()
    assert (outcome.began, outcome.ended) == (0, 20)
    assert [(each.epochs, each.finished) for each in outcome.jobs] == [(20, None)]
    assert [(each.workers, each.samples_per_second) for each in cluster.snapshot().reports] == [(1, 1)]
    assert [state.epochs_done for state in cluster.snapshot().jobs] == [20, 0]


def test_slots_are_those_of_the_simulator():
    world = formula()
    jobs = world.jobs(3, 2.7)
    by_events = completion_times(jobs, world.nodes, world.speeds, Optimus(TrueSpeeds(world.speeds)), 600.0)
    slots = run(
        SimulatedCluster(jobs, world.nodes, world.speeds, 600.0), Optimus(TrueSpeeds(world.speeds)), NodeRule.SPREAD
    )
    assert by_events == pytest.approx(slots * 600.0)


@pytest.mark.slow
def test_events_are_the_limit_of_fine_slots():
    # for a policy that looks at who is there, not at what is left: others decide anew while nothing happens
    world = formula()
    jobs = world.jobs(4, 2.7, 8)
    woken = Planner(TrueSpeeds(world.speeds))
    woken.trigger = PolicyTrigger.EVENT
    exact = completion_times(jobs, world.nodes, world.speeds, woken).mean()
    off = []
    for slot in (60.0, 15.0, 3.0):
        at_slots = completion_times(jobs, world.nodes, world.speeds, Planner(TrueSpeeds(world.speeds)), slot).mean()
        off.append(abs(at_slots - exact) / exact)
    assert off[0] > off[1] > off[2]
    assert off[2] < 0.002


def test_the_formula_world_has_the_papers_scale():
    world = formula()
    speeds = world.speeds.grid("resnet-50")
    assert 32 / speeds[1, 1] == pytest.approx(1.0203 * 32 + 2.7765 + 4.9247 + 0.0016 + 0.5)
    assert 32 / speeds.max() == pytest.approx(15.8, abs=0.1)
    assert 32 / world.speeds.grid("vgg-16")[2, 3] == pytest.approx(1.3 * 32 / speeds[2, 3])
    jobs = world.jobs(1, 1.8, 2000)
    assert {each.model for each in jobs} == set(MODELS)
    assert min(each.epochs for each in jobs) == 100
    assert max(each.epochs for each in jobs) == 200
    assert jobs[-1].arrival == pytest.approx(2000 * 2000, rel=0.1)
    assert jobs == world.jobs(1, 1.8, 2000)
    assert world.nodes == POOL


def test_the_table_world_trains_ten_times_as_long_on_measured_speeds():
    world = table()
    assert world.name == "smooth table"
    assert {each.samples_per_epoch for each in world.jobs(1, 1.8)} == {32.0, 128.0}
    assert min(each.epochs for each in world.jobs(1, 1.8, 500)) == 1000
    assert table(world.speeds).name == "table"
    assert table(world.speeds).speeds.grid("vgg-16").shape == (17, 11)
