"""The simulated cluster: the dynamics against plain Python, and by hand."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput, Starved
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.rules.fifo import Fifo
from dl2_scheduler.sim import simulator
from dl2_scheduler.sim.lanes import Lanes, ScalingCost
from dl2_scheduler.sim.simulator import SimulatedCluster, run, steps
from dl2_scheduler.sim.variation import Variation, by_arrival
from tests.dl2_scheduler.clusters import MOST, SPEEDS, grid, job, nodes

SLOT = 100.0
ONE_NODE = nodes({"cpu": 8})


@dataclass
class SlowCluster:
    """`Lanes` of one lane, a job at a time."""

    jobs: list[Job]
    cost: ScalingCost
    factors: list[float]
    slot: int = 0
    done: dict[int, float] = field(default_factory=dict)
    finish: dict[int, float] = field(default_factory=dict)
    before: dict[int, tuple[int, int]] = field(default_factory=dict)
    begins: dict[int, float] = field(default_factory=dict)  # seconds from the slot's start on
    joined: dict[int, tuple[float, tuple[int, int]]] = field(default_factory=dict)  # likewise; trains with these before

    def advance(self, counts: list[tuple[int, int]]) -> None:
        for number, (each, (workers, servers), factor) in enumerate(zip(self.jobs, counts, self.factors, strict=True)):
            if each.arrival / SLOT > self.slot or number in self.finish or not (workers and servers):
                self.before[number] = 0, 0
                self.begins.pop(number, None)
                self.joined.pop(number, None)
                continue
            before, self.before[number] = self.before.get(number, (0, 0)), (workers, servers)
            begins, joined = self.begins.pop(number, 0.0), self.joined.pop(number, (0.0, (0, 0)))
            if before == (0, 0):
                begins = self.cost.start
            elif before != (workers, servers):
                begins += self.cost.change
                base = joined[1] if joined[0] > 0 else before
                joined = (self.cost.join if workers > before[0] or servers > before[1] else 0.0), base
            self.begins[number] = max(0.0, begins - SLOT)
            self.joined[number] = max(0.0, joined[0] - SLOT), joined[1]
            begins = min(begins, SLOT)
            switch = min(max(begins, joined[0]), SLOT)
            slow, speed = (
                max(0.0, SPEEDS.grids[each.model][counts[::-1]]) * factor / each.samples_per_epoch
                for counts in (joined[1], (workers, servers))
            )
            need = each.epochs - self.done.get(number, 0.0)
            first = slow * (switch - begins)
            possible = first + speed * (SLOT - switch)
            if speed and possible >= need * (1 - 1e-9):
                at = begins + need / slow if need < first else switch + (need - first) / speed
                self.finish[number] = self.slot + at / SLOT
                self.done[number] = each.epochs
            else:
                self.done[number] = self.done.get(number, 0.0) + min(possible, need)
        self.slot += 1


JOBS = st.lists(
    st.builds(
        job,
        arrival=st.floats(0, 5 * SLOT) | st.sampled_from([0.0, SLOT, 2 * SLOT]),
        model=st.sampled_from(SPEEDS.models),
        epochs=st.floats(0.5, 1000),
        samples_per_epoch=st.floats(0.2, 20),
    ),
    min_size=1,
    max_size=5,
).map(lambda jobs: [replace(each, id=number) for number, each in enumerate(jobs)])
COSTS = st.builds(
    ScalingCost, *(st.sampled_from(each) for each in ([0.0, 7.0, 150.0], [0.0, 3.0, 250.0], [0.0, 5.0, 130.0]))
)
COUNT = st.integers(0, MOST)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(JOBS, min_size=1, max_size=3), COSTS, st.sampled_from([0.0, 0.5]), st.data())
def test_lanes_are_many_slow_clusters(
    jobs: list[list[Job]], cost: ScalingCost, part: float, data: st.DataObject
) -> None:
    variations = [Variation(part, seed) for seed in range(len(jobs))]
    lanes = Lanes(jobs, SPEEDS, SLOT, cost, variations)
    slow = [
        SlowCluster(sorted(each, key=by_arrival), cost, variation.factors(len(each)).tolist())
        for each, variation in zip(jobs, variations, strict=True)
    ]
    for _ in range(data.draw(st.integers(1, 12))):
        counts = [[data.draw(st.tuples(COUNT, COUNT)) for _ in each] for each in jobs]
        filled = np.zeros((*lanes.real.shape, 2), dtype=np.int64)
        for number, each in enumerate(counts):
            filled[number, : len(each)] = each
            slow[number].advance(each)
        lanes.advance(filled[..., 0], filled[..., 1])
        for number, cluster in enumerate(slow):
            size = len(cluster.jobs)
            assert lanes.done[number, :size] == pytest.approx([cluster.done.get(at, 0.0) for at in range(size)])
            finish = [cluster.finish.get(at, math.nan) for at in range(size)]
            assert lanes.finish[number, :size] == pytest.approx(finish, nan_ok=True)
            assert lanes.over[number] == (len(cluster.finish) == size)


@dataclass(frozen=True)
class Fixed:
    """Gives every job the same."""

    workers: int = 1
    servers: int = 1

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        return Allocation({state.job.id: Grant(self.workers, self.servers) for state in snapshot.jobs})


def times(*jobs: Job, policy: Fixed | Fifo = Fixed(), cost: ScalingCost = ScalingCost()) -> list[float]:  # noqa: B008
    return run(SimulatedCluster(jobs, ONE_NODE, SPEEDS, SLOT, cost), policy, NodeRule.SPREAD).tolist()


def test_a_job_ends_inside_a_slot() -> None:
    assert times(job(epochs=250.0)) == pytest.approx([2.5])
    assert times(job(epochs=250.0), policy=Fixed(2, 2)) == pytest.approx([1.25])
    assert times(job(epochs=200.0)) == pytest.approx([2.0])


def test_a_job_that_comes_within_a_slot_waits_for_the_next() -> None:
    assert times(job(arrival=130.0, epochs=50.0)) == pytest.approx([0.7 + 0.5])
    assert times(job(arrival=200.0, epochs=50.0)) == pytest.approx([0.5])


def test_jobs_are_by_arrival_then_id() -> None:
    cluster = SimulatedCluster([job(3), job(1, arrival=5.0), job(2)], ONE_NODE, SPEEDS, SLOT)
    assert [state.job.id for state in cluster.snapshot().jobs] == [2, 3]
    cluster.finish_slot()
    assert [state.job.id for state in cluster.snapshot().jobs] == [2, 3, 1]


def test_scaling_costs_seconds_of_training() -> None:
    assert times(job(epochs=250.0), cost=ScalingCost(start=20.0)) == pytest.approx([2.7])
    cluster = SimulatedCluster([job(epochs=1000.0)], ONE_NODE, SPEEDS, SLOT, ScalingCost(start=20.0, change=5.0))
    trained = []
    for grant in [Grant(1, 1), Grant(1, 1), Grant(2, 2), Grant(2, 1), Grant(0, 0), Grant(1, 1)]:
        cluster.apply(Allocation({1: grant}))
        trained.append(cluster.finish_slot().jobs[0].epochs)
    assert trained == pytest.approx([80.0, 100.0, 190.0, 95.0, 0.0, 80.0])


def trained(cost: ScalingCost, *grants: Grant) -> list[float]:
    cluster = SimulatedCluster([job(epochs=1000.0)], ONE_NODE, SPEEDS, SLOT, cost)
    found = []
    for grant in grants:
        cluster.apply(Allocation({1: grant}))
        found.append(cluster.finish_slot().jobs[0].epochs)
    return found


@pytest.mark.parametrize(("seconds", "left"), [(0.0, 30.0), (20.0, 10.0), (40.0, 0.0)])
def test_a_job_that_is_being_started_owes_what_is_left_of_its_start(seconds: float, left: float) -> None:
    cluster = SimulatedCluster([job(epochs=1000.0)], ONE_NODE, SPEEDS, SLOT, ScalingCost(start=30.0))
    cluster.lanes.begin(0, [JobState(job(epochs=1000.0), starting=True, starting_seconds=seconds)])
    found = []
    for grant in (Grant(1, 1), Grant(0, 0), Grant(1, 1)):
        cluster.apply(Allocation({1: grant}))
        found.append(cluster.finish_slot().jobs[0].epochs)
    assert found == pytest.approx([100.0 - left, 0.0, 70.0]), "and the next start is a whole one"


def test_a_job_whose_coordinator_comes_back_trains_on() -> None:
    cluster = SimulatedCluster([job(epochs=1000.0)], ONE_NODE, SPEEDS, SLOT, ScalingCost(start=30.0))
    cluster.lanes.begin(0, [JobState(job(epochs=1000.0), 0.0, 3, 1, 1, starting=True)])
    cluster.apply(Allocation({1: Grant(1, 1)}))
    assert cluster.finish_slot().jobs[0].epochs == pytest.approx(100.0)


def test_a_start_that_is_longer_than_a_slot_goes_on_in_the_next() -> None:
    cost, one = ScalingCost(start=150.0), Grant(1, 1)
    assert trained(cost, one, one, one) == pytest.approx([0.0, 50.0, 100.0])
    assert trained(cost, one, Grant(0, 0), one, one) == pytest.approx([0.0, 0.0, 0.0, 50.0])
    assert times(job(epochs=60.0), cost=cost) == pytest.approx([2.1])


def test_a_job_trains_on_as_it_was_while_tasks_join() -> None:
    one, two, none = Grant(1, 1), Grant(2, 2), Grant(0, 0)
    assert trained(ScalingCost(join=30.0), one, two, two, one) == pytest.approx([100.0, 170.0, 200.0, 100.0])
    assert trained(ScalingCost(join=130.0), one, two, two) == pytest.approx([100.0, 100.0, 170.0])
    assert trained(ScalingCost(join=130.0), one, two, one, two) == pytest.approx([100.0] * 4)
    assert trained(ScalingCost(join=130.0), one, two, none, one, one) == pytest.approx(
        [100.0, 100.0, 0.0, 100.0, 100.0]
    )
    assert trained(ScalingCost(start=20.0, join=50.0), one, two, two) == pytest.approx([80.0, 150.0, 200.0])


def test_a_job_that_ends_before_its_new_tasks_join_gains_nothing() -> None:
    @dataclass
    class Grows:
        grants: list[Grant]

        def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
            return Allocation({1: self.grants[min(snapshot.slot, len(self.grants) - 1)]})

    policy = Grows([Grant(1, 1), Grant(2, 2)])
    cluster = SimulatedCluster([job(epochs=140.0)], ONE_NODE, SPEEDS, SLOT, ScalingCost(join=50.0))
    assert run(cluster, policy, NodeRule.SPREAD).tolist() == pytest.approx([1.4])


def test_what_a_slot_tells() -> None:
    cluster = SimulatedCluster([job(1, epochs=150.0), job(2), job(3)], ONE_NODE, SPEEDS, SLOT)
    cluster.apply(Allocation({1: Grant(2, 2), 2: Grant(1, 0)}))
    outcome = cluster.finish_slot()
    first, second, third = outcome.jobs
    assert outcome.slot == 0
    assert (first.workers, first.servers, first.epochs, first.finished) == (2, 2, 150.0, pytest.approx(75.0))
    assert (second.workers, second.servers, second.epochs, second.finished) == (0, 0, 0.0, None)
    assert (third.id, third.epochs) == (3, 0.0)
    assert [(each.job, each.servers, each.workers, each.samples_per_second) for each in outcome.reports] == [
        (1, 2, 2, 2.0)
    ]
    now = cluster.snapshot()
    assert [state.job.id for state in now.jobs] == [2, 3]
    assert now.reports == outcome.reports


def test_a_state_is_of_the_slot_before() -> None:
    cluster = SimulatedCluster([job(epochs=1000.0)], ONE_NODE, SPEEDS, SLOT)
    cluster.apply(Allocation({1: Grant(2, 3)}))
    cluster.finish_slot()
    (state,) = cluster.snapshot().jobs
    assert (state.epochs_done, state.slots_run, state.workers, state.servers) == (200.0, 1, 2, 3)


def test_an_owners_estimate_hides_what_a_job_needs() -> None:
    cluster = SimulatedCluster([job(epochs=250.0, epochs_estimate=150.0)], ONE_NODE, SPEEDS, SLOT)
    remaining = [cluster.snapshot().jobs[0].remaining_epochs]
    for _ in steps(cluster, Fixed(), NodeRule.SPREAD):
        remaining += [state.remaining_epochs for state in cluster.snapshot().jobs]
    assert remaining == pytest.approx([150.0, 50.0, 0.05 * 150.0])


def test_a_policy_that_starves_is_told() -> None:
    cluster = SimulatedCluster([job()], ONE_NODE, SPEEDS, SLOT)
    with pytest.raises(Starved, match="1 jobs are left after 20 slots: the policy starves them"):
        run(cluster, Fixed(0, 0), NodeRule.SPREAD, most_slots=20)


def test_jobs_that_arrive_too_late_are_no_policys_fault() -> None:
    cluster = SimulatedCluster([job(), job(2, arrival=25 * SLOT)], ONE_NODE, SPEEDS, SLOT)
    with pytest.raises(BadInput, match="after 20 slots no job is there, and others are still to come: they arrive too"):
        run(cluster, Fixed(), NodeRule.SPREAD, most_slots=20)


def test_one_node_is_shared_in_time() -> None:
    """Eight tasks fit: the first job takes all, the second what is left of the next slots."""
    assert times(job(1, epochs=600.0), job(2, epochs=400.0), policy=Fifo()) == pytest.approx([1.5, 3.0])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"epochs": 0.0}, "epochs is 0: give a number above 0"),
        ({"model": "gpt"}, "unknown model gpt: the speeds have bumpy, even, flat"),
        (
            {"worker": {"cpu": 9}},
            "a worker takes {'cpu': 9}, which no node has; the most that nodes have is {'cpu': 8}",
        ),
        ({"max_workers": 9}, "up to 4 servers and 9 workers, but the speeds of even end at 8 and 8"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_job(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(BadInput) as refused:
        SimulatedCluster([job("mine"), job("other", **fields)], ONE_NODE, SPEEDS, SLOT)
    assert str(refused.value).startswith("job other: ")
    assert reason in str(refused.value)


def test_a_job_that_never_runs_is_refused() -> None:
    still = Speeds({"even": -grid()})
    with pytest.raises(BadInput, match="job 1: even has no speed above 0 within the job's maxima"):
        SimulatedCluster([job()], ONE_NODE, still, SLOT)


def test_whether_jobs_fit_is_tried_once_for_all_that_ask_for_the_same(monkeypatch):
    """Of a long queue on thousands of nodes a simulated future would take minutes to begin otherwise."""
    tried = []
    monkeypatch.setattr(simulator, "check_minimum_fits", lambda job, nodes: tried.append(job.id))
    alike = [job(number) for number in range(3)]
    SimulatedCluster([*alike, replace(alike[0], id=3, min_workers=2)], ONE_NODE, SPEEDS)
    assert tried == [0, 3]
