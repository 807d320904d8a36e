"""The cluster whose jobs are coupled: against the one whose jobs are not, by hand, and never over capacity."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import GRAPH, HARMONY, Hardware, Machines, Socket
from dl2_scheduler.cluster.hardware.profiles import PUBLISHED
from dl2_scheduler.cluster.hardware.topologies.fat_tree import fat_tree
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.policies.placement.balance import LoadBalancing
from dl2_scheduler.policies.placement.greedy_fill import GreedyFill
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.cluster import PlacedCluster
from dl2_scheduler.sim.placed.placed_speed import Apart, Mechanistic
from dl2_scheduler.sim.placed.workloads import Workload
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster, steps

MACHINES = Machines.alike(HARMONY, 3)
TOPOLOGY = flat_of(MACHINES)
MODELS = tuple(sorted(set(PUBLISHED) - {"ctc"}))  # which the speeds by counts know, too
PROFILES = {model: PUBLISHED[model] for model in MODELS}
SPEEDS = shipped_speeds()
SLOT = 1200.0
BALANCED = GreedyFill(LoadBalancing(), skipping=True)


def job(number: int, model: str, arrival: float, samples: float, workers: int = 1, servers: int = 1) -> Job:
    profile = PROFILES[model]
    most = (workers, servers) * 2
    return Job(number, arrival, model, samples, 1.0, profile.worker, profile.server, *most)


def cluster(jobs, world, placement=BALANCED) -> PlacedCluster:
    return PlacedCluster(jobs, MACHINES, TOPOLOGY, PROFILES, world, placement, SLOT)


def run(placed: PlacedCluster, policy) -> list:
    return list(steps(placed, policy, 0))


def elastic(jobs) -> list[Job]:
    return [replace(each, min_workers=1, min_servers=1) for each in jobs]


@pytest.mark.parametrize("seed", range(5))
def test_jobs_apart_are_those_of_the_other_simulator(seed):
    jobs = elastic(Workload(PROFILES, mean=2, jobs=20).draw(seed, lambda *counts: SPEEDS.of(counts[0], *counts[:0:-1])))
    one = Machines.alike(Hardware((Socket(cores=24, gpus=6),)), 1)  # of several, tasks that stay may leave no room
    placed = PlacedCluster(jobs, one, flat_of(one), PROFILES, Apart(SPEEDS, MODELS), BALANCED, SLOT)
    alone = SimulatedCluster(jobs, placed.snapshot().nodes, SPEEDS, SLOT)
    policies = Drf(), Drf()
    for left, right in zip(steps(placed, policies[0], 0), steps(alone, policies[1], 0), strict=True):
        assert [(each.id, each.workers, each.servers) for each in left.jobs] == [
            (each.id, each.workers, each.servers) for each in right.jobs
        ]
    assert placed.completion_times() == pytest.approx(alone.lanes.completion_times()[0], rel=1e-9)


def test_speeds_change_when_a_job_ends_inside_a_slot():
    """Two jobs on one node; the second one ends first, and the other trains on at its speed alone."""
    world = Mechanistic(Machines.alike(HARMONY, 1), flat_of(Machines.alike(HARMONY, 1)), PROFILES)
    jobs = [job(0, "wlm", 0, 90_000), job(1, "resnext-110", 0, 30_000)]
    machines = Machines.alike(HARMONY, 1)
    placed = PlacedCluster(jobs, machines, flat_of(machines), PROFILES, world, BALANCED, SLOT)
    placed.apply(Allocation({0: Grant(1, 1), 1: Grant(1, 1)}))
    both = placed.rates.copy()
    outcome = placed.finish_slot()
    alone = 160 / (0.154 + 19.2 / 22.9)
    first = 30_000 / both[1]
    assert outcome.jobs[1].finished == pytest.approx(first)
    assert outcome.jobs[0].finished == pytest.approx(first + (90_000 - first * both[0]) / alone)
    assert placed.done


def test_tasks_that_are_granted_no_more_end_and_others_stay():
    placed = cluster([job(0, "dssm", 0, 1e9, workers=3, servers=2)], Apart(SPEEDS, MODELS))
    placed.apply(Allocation({0: Grant(3, 2)}))
    before = placed.tasks[0][0][:], placed.tasks[0][1][:]
    placed.finish_slot()
    placed.apply(Allocation({0: Grant(1, 2)}))
    assert placed.tasks[0] == (before[0][:1], before[1])
    placed.finish_slot()
    placed.apply(Allocation({}))
    assert placed.tasks == {}
    assert not placed.rates.any()


def test_half_a_grant_is_none():
    seen = Wrong(Places())
    placed = cluster([job(0, "dssm", 0, 1e9)], Apart(SPEEDS, MODELS), seen)
    placed.apply(Allocation({0: Grant(1, 0)}))
    assert not seen.seen[0].missing.any()


@dataclass
class Wrong:
    """A policy that answers what it was told."""

    placement: Places
    seen: list[PlacementView] = field(default_factory=list)

    def place(self, view: PlacementView) -> Places:
        self.seen.append(view)
        return self.placement


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({0: ((0,), ())}, "0 servers were placed of 1"),
        ({0: ((0, 1), (1,))}, "2 workers were placed of 1"),
        ({0: ((-1,), (0,))}, "group -1 is not there"),
        ({0: ((0,), (3,))}, "group 3 is not there"),
        ({0: ((0,), (0,)), 1: ((0,), (0,)), 2: ((0,), (0,))}, "group 0 would have to hold more than it has"),
    ],
)
def test_a_wrong_placement_is_refused(groups, message):
    jobs = [job(number, "resnet-50", 0, 1e6) for number in range(3)]
    placed = cluster(jobs, Apart(SPEEDS, MODELS), Wrong(Places(groups)))
    with pytest.raises(BadInput, match=message):
        placed.apply(FixedDemand().allocate(placed.snapshot(), None))
    assert placed.tasks == {}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from(["uniform", "poisson"]))
def test_nothing_is_over_capacity_and_all_jobs_end(seed, mean, pattern):
    world = Mechanistic(MACHINES, TOPOLOGY, PROFILES)
    jobs = Workload(PROFILES, mean=mean, jobs=12, pattern=pattern).draw(seed, lambda *_: 100.0)
    placed = cluster(jobs, world)
    for _ in steps(placed, FixedDemand(), 0):
        running = sorted(placed.tasks)
        where = placed.placements(running)
        used = np.zeros_like(MACHINES.capacity)
        demand = placed._demand[running].reshape(-1, 2, 2)
        np.add.at(used, where.group, demand[where.job, where.role])
        assert (used <= MACHINES.capacity + 1e-9).all()
    assert (placed.completion_times() > 0).all()
    assert placed.progress.left.max() == 0


def test_a_run_is_the_same_each_time():
    world = Mechanistic(MACHINES, TOPOLOGY, PROFILES)
    jobs = Workload(PROFILES, jobs=10).draw(1, lambda *_: 100.0)
    runs = [cluster(jobs, world) for _ in range(2)]
    for each in runs:
        run(each, FixedDemand())
    assert runs[0].completion_times().tolist() == runs[1].completion_times().tolist()


def test_a_large_cluster_rates_only_who_feels_an_event_and_finds_the_same():
    """A world that hides that it can do so is asked for all rates each time."""

    @dataclass
    class Whole:
        world: Mechanistic

        def rates(self, placements):
            return self.world.rates(placements)

    machines, topology = Machines.alike(GRAPH, 128), fat_tree(8, oversubscription=8)
    world = Mechanistic(machines, topology, PROFILES)
    jobs = Workload(PROFILES, mean=20, jobs=60).draw(3, lambda *_: 100.0)
    clusters = [
        PlacedCluster(jobs, machines, topology, PROFILES, each, BALANCED, SLOT) for each in (world, Whole(world))
    ]
    assert [each._rated is None for each in clusters] == [False, True]
    for each in clusters:
        run(each, FixedDemand())
    assert clusters[0].completion_times() == pytest.approx(clusters[1].completion_times(), rel=1e-9)


@pytest.mark.parametrize(
    ("mean", "pattern"),
    [
        *[(0.0, "uniform"), (1e-9, "uniform"), (0.0, "poisson"), (1e-9, "poisson"), (-1.0, "google")],
        *[(float("nan"), "google"), (1.0, "posson")],
    ],
)
def test_a_workload_whose_jobs_come_too_late_is_refused(mean, pattern):
    with pytest.raises(BadInput, match=r"jobs an interval|unknown pattern"):
        Workload(PROFILES, mean=mean, pattern=pattern)


@pytest.mark.parametrize("pattern", ["uniform", "poisson", "google"])
def test_the_least_load_is_told(pattern):
    with pytest.raises(BadInput, match=r"60 jobs come in 6e\+10 intervals, .* at most 100,000: give 0\.0012 or more"):
        Workload(PROFILES, mean=1e-9, pattern=pattern)
    late = Workload(PROFILES, mean=0.0012, pattern=pattern).draw(1, lambda *_: 100.0)[-1].arrival
    assert 20_000 < late / 1200 < 100_000


@pytest.mark.parametrize("mean", [0.2, 0.6, 1.0, 2.2, 2.4, 3.0, 4.8])
def test_uniform_arrivals_have_the_mean_that_was_asked_for(mean):
    count = int(40_000 * mean)
    jobs = Workload(PROFILES, mean=mean, jobs=count).draw(2, lambda *_: 100.0)
    intervals = jobs[-1].arrival / 1200 + 1
    assert count / intervals == pytest.approx(mean, rel=0.03)
    counts = np.bincount([round(job.arrival / 1200) for job in jobs])
    assert counts.max() == math.ceil(2 * mean)


def test_uniform_arrivals_of_half_a_jobs_multiples_are_one_draw_each():
    for mean in (0.5, 1.5, 3.0, 15 * 0.2, 15 * 0.1):
        workload = Workload(PROFILES, mean=mean, jobs=30)
        random, drawn, numbers = np.random.default_rng(4), np.random.default_rng(4), []
        while sum(numbers) < 30:
            numbers.append(int(drawn.integers(round(2 * mean) + 1)))
        assert workload._intervals(random) == np.repeat(np.arange(len(numbers)), numbers)[:30].tolist()
