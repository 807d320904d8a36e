"""All placement policies: one contract, each rule by hand, and planners beside the exact optimum."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dl2_scheduler.cluster.hardware.interference import LoadInterference, LoadPoint
from dl2_scheduler.cluster.hardware.machines import GPU, HARMONY, Machines
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.hardware.view import RESOURCES, PlacementView, check_placement
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobState
from dl2_scheduler.figures.placement.contenders import contenders
from dl2_scheduler.policies.learnt.placer import TaskReader
from dl2_scheduler.policies.placement.annealing import Annealing
from dl2_scheduler.policies.placement.balance import BestFit, LoadBalancing, TetrisDot
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks
from dl2_scheduler.policies.placement.greedy_fill import GreedyFill, JobOrder
from dl2_scheduler.policies.placement.least_interference import LeastInterference
from dl2_scheduler.policies.placement.local_search import LocalSearch, less_remaining, progress_rate
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.placed_speed import Mechanistic
from dl2_scheduler.sim.placed.scenario import Scenario

PROFILES = {model: PUBLISHED[model] for model in HARMONY_MODELS}
MODELS = tuple(sorted(PROFILES))
SCENARIO = Scenario.harmony(3.0)
POLICIES = contenders(SCENARIO)
POLICIES["annealing, true"] = Annealing(POLICIES["local search, true"], trials=5)


def job(number: int, model: str, workers: int = 1, servers: int = 1, samples: float = 1e6) -> Job:
    profile = PROFILES[model]
    return Job(number, 0, model, samples, 1.0, profile.worker, profile.server, *(workers, servers) * 2)


def view_of(jobs: list[Job], nodes: int = 3, tasks=()) -> PlacementView:
    """Show jobs on so many of Harmony's nodes; `tasks` are (job, role, node) of those that have a place."""
    machines = Machines.alike(HARMONY, nodes)
    where = np.array(list(tasks), dtype=np.int64).reshape(-1, 3)
    demand = np.array([[[each.get(name, 0) for name in RESOURCES] for each in (j.worker, j.server)] for j in jobs])
    free = machines.capacity.copy()
    missing = np.array([[j.max_workers, j.max_servers] for j in jobs])
    for number, role, node in where:
        free[node] -= demand[number, role]
        missing[number, role] -= 1
    numbers = np.arange(len(jobs))
    placed = PlacementArrays(np.array([MODELS.index(j.model) for j in jobs]), *where.T, numbers)
    states = tuple(JobState(j) for j in jobs)
    rates = np.zeros(len(jobs))
    return PlacementView(
        0.0, machines, flat_of(machines), MODELS, PROFILES, states, demand, missing, placed, free, rates
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_keeps_the_contract(name):
    """The cluster checks each answer: never over what groups have, never half a job; and the runs are alike."""
    short = Scenario.harmony(4.0)
    jobs = short.jobs(5)[:15]
    runs = [short.completion_times(FixedDemand(), POLICIES[name], jobs) for _ in range(2)]
    assert runs[0].tolist() == runs[1].tolist()
    assert (runs[0] > 0).all()


def test_workers_and_servers_are_placed_in_turn():
    assert list(missing_tasks(view_of([job(0, "ctc", 3, 1)]), 0)) == [0, 1, 0, 0]


def test_load_balancing_spreads_and_best_fit_packs():
    view = view_of([job(0, "ctc", 2, 2)])
    assert GreedyFill(LoadBalancing()).place(view).groups == {0: ((0, 2), (1, 1))}  # 4, 1, then 4 on the empty one, 1
    assert GreedyFill(BestFit()).place(view).groups == {0: ((0, 0), (0, 0))}


def test_the_tetris_score_prefers_empty_groups():
    view = view_of([job(0, "resnet-50"), job(1, "resnet-50")], tasks=[(1, 0, 0), (1, 1, 0)])
    assert GreedyFill(TetrisDot()).place(view).groups == {0: ((1,), (2,))}
    assert GreedyFill(BestFit()).place(view).groups == {0: ((0,), (0,))}


def test_a_job_that_does_not_fit_keeps_its_places_or_lets_others_by():
    jobs = [job(0, "vgg-16", 3, 3), job(1, "ctc")]
    view = view_of(jobs, nodes=1)  # two GPUs
    assert GreedyFill(BestFit()).place(view).groups == {}
    assert GreedyFill(BestFit(), skipping=True).place(view).groups == {1: ((0,), (0,))}


def test_a_job_alone_is_packed_where_the_rule_finds_no_places():
    """Each rule but to pack puts a server of 3 on each of 6 and 4, and a second worker of 2 finds no place."""
    alone = view_of([job(0, "ctc", 2, 2)], nodes=2)
    free, demand = np.array([[6.0, 0.0], [4.0, 0.0]]), np.array([[[2.0, 0.0], [3.0, 0.0]]])
    packed = {0: ((1, 1), (0, 0))}
    for each in (GreedyFill(LoadBalancing()), GreedyFill(BestFit()), POLICIES["local search, true"]):
        assert each.place(replace(alone, free=free, demand=demand)).groups == packed
    beside = view_of([job(0, "ctc", 2, 2), job(1, "ctc")], nodes=2, tasks=[(1, 0, 0), (1, 1, 0)])
    both = np.concatenate([demand, np.zeros((1, 2, 2))])
    waits = GreedyFill(LoadBalancing()).place(replace(beside, free=free, demand=both))
    assert waits.groups == {}


def test_the_shortest_job_is_placed_first():
    jobs = [job(0, "ctc", samples=1e6), job(1, "ctc", samples=1e3)]
    view = view_of(jobs, nodes=1)
    for order, first in ((JobOrder.ARRIVAL, 0), (JobOrder.SHORTEST, 1)):
        assert next(iter(GreedyFill(BestFit(), order).place(view).groups)) == first


LOADED = LoadInterference.fitted(
    PROFILES, {m: [LoadPoint(cpu, 0.0, 0.1 * cpu) for cpu in range(8)] for m in PROFILES}, quadratic=False
)


def test_least_interference_keeps_away_from_others():
    others = [(1, 0, 0), (1, 1, 0)]
    view = view_of([job(0, "seq2seq", 1, 1), job(1, "ctc")], tasks=others)
    assert GreedyFill(LeastInterference(LOADED)).place(view).groups == {0: ((1,), (2,))}
    assert GreedyFill(LeastInterference(LOADED, own_first=True)).place(view).groups == {0: ((1,), (1,))}


def test_fitted_interference_gives_back_what_it_was_fitted_to():
    def law(cpu: float, traffic: float) -> float:
        return 0.02 + 0.1 * cpu + 0.001 * traffic + 0.005 * cpu**2 + 0.0001 * cpu * traffic

    points = [LoadPoint(cpu, mbps, law(cpu, mbps)) for cpu in (0.0, 1.0, 2.0, 4.0) for mbps in (0.0, 50.0, 100.0)]
    form = LoadInterference.fitted(PROFILES, dict.fromkeys(PROFILES, points), quadratic=True)
    model = np.array([MODELS.index("wlm"), MODELS.index("ctc")])
    beside = PlacementArrays(model, np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([4, 4, 4]), np.arange(2))
    ctc = PROFILES["ctc"]
    expected = law(ctc.cpu_worker + ctc.cpu_server, 2 * ctc.size_mb / ctc.step_s)
    assert form.slowdown(beside)[0] == pytest.approx(expected)


def test_a_node_that_lacks_what_a_task_does_not_need_takes_it():
    view = view_of([job(0, "ctc")], nodes=1)
    view.free[0] = 8, -1  # its GPU is gone, and a task that uses one is still there
    assert Draft(view).fitting(0, 0).tolist() == [0]
    view.free[0] = -1, 1
    assert Draft(view).fitting(0, 0).tolist() == []


def test_a_learnt_policy_reads_which_groups_a_task_may_have():
    view = view_of([job(0, "ctc"), job(1, "ctc")])
    view.free[0] = 8, -1
    allowed = np.ones((2, 2, 3), dtype=bool)
    allowed[:, :, 2] = False
    draft = Draft(replace(view, allowed=allowed))
    assert TaskReader(draft).inputs(0, 0, ()).allowed.tolist() == [True, True, False, False]


def test_a_draft_can_be_undone():
    view = view_of([job(0, "ctc", 2, 1)])
    draft = Draft(view)
    for role, group in ((0, 0), (1, 0), (0, 1)):
        draft.put(0, role, group)
    assert draft.move(0, 0, 1, 2) == 1
    assert draft.groups == {0: ([0, 2], [0])}
    assert draft.tasks == [[(0, 0), (0, 1)], [], [(0, 0)]]
    draft.drop(0)
    assert (draft.free == view.free).all()
    assert draft.tasks == [[], [], []]
    assert draft.placement().groups == {}


def _optimum(view: PlacementView, world: Mechanistic, goal) -> float:
    """Try all places of all tasks."""
    tasks = [(number, role) for number in range(len(view.jobs)) for role in missing_tasks(view, number)]
    best = -np.inf
    for groups in product(range(len(view.free)), repeat=len(tasks)):
        draft = Draft(view)
        for (number, role), group in zip(tasks, groups, strict=True):
            draft.put(number, role, group)
        if (draft.free >= 0).all():
            best = max(best, goal(view, world.rates(draft.arrays())))
    return best


@pytest.mark.parametrize("pair", [("ctc", "resnext-110"), ("vgg-16", "wlm"), ("seq2seq", "resnet-50")])
@pytest.mark.parametrize("goal", [less_remaining, progress_rate])
def test_planners_come_near_the_exact_optimum(pair, goal):
    """Three servers, two jobs of two workers and a server each: all 3^6 placements are tried."""
    view = view_of([job(number, model, 2, 1, samples=1e5) for number, model in enumerate(pair)])
    world = Mechanistic(view.machines, view.topology, PROFILES)
    best = _optimum(view, world, goal)
    search = LocalSearch(world, [LoadBalancing(), BestFit()], goal)
    for policy, within in ((search, 0.15), (Annealing(search, trials=300), 0.02)):  # single moves end on local optima
        places = policy.place(view)
        check_placement(view, places)
        draft = Draft(view)
        for number, roles in places.groups.items():
            for role in (0, 1):
                for group in roles[role]:
                    draft.put(number, role, group)
        assert search.value(draft) >= best - within * abs(best)


def test_a_planner_may_let_a_job_wait():
    """Five jobs that live off the cache: with one more on the only node, all do less together."""
    jobs = [job(number, "resnext-110") for number in range(2)] + [job(2, "ctc")]
    tasks = [(number, role, 0) for number in range(2) for role in (0, 1)]
    view = view_of(jobs, nodes=1, tasks=tasks)
    world = Mechanistic(view.machines, view.topology, PROFILES, strength=3.0)
    at_once, waits = (LocalSearch(world, [BestFit()], progress_rate, may_wait=wait) for wait in (False, True))
    assert at_once.place(view).groups == {2: ((0,), (0,))}
    assert waits.place(view).groups == {}
    assert view.demand[2, 0, RESOURCES.index(GPU)] == 0
