"""The graph scheduler's interference and speeds: by hand, by properties, and against its figure 1 and table III."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.cluster.hardware.machines import GRAPH, HARMONY, Machines
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.sim.placed.calibrate import placed
from dl2_scheduler.sim.placed.formula.clusters import NetworkType
from dl2_scheduler.sim.placed.formula.table_fits import fit_errors
from dl2_scheduler.sim.placed.formula.world import LOSS, Coefficients, Formula, FormulaInterference, Loads
from dl2_scheduler.sim.placed.scenario import Scenario

MODELS = tuple(sorted(PUBLISHED))
MACHINES = Machines.alike(GRAPH, 4)
WORLD = Formula.drawn(MACHINES, flat_of(MACHINES), PUBLISHED, seed=0)
HAND = FormulaInterference(
    MACHINES,
    Coefficients((0.1, 0.2, 0.3, -0.05), (0.01, 0.02, 0.03)),
    np.tile([3.0, 1.0], (8, 1)),  # cores of a worker, and of a server
    np.tile([5.0, 0.0], (8, 1)),
)

jobs = st.lists(
    st.tuples(
        st.sampled_from(MODELS),
        st.lists(st.integers(0, 3), min_size=1, max_size=3),
        st.lists(st.integers(0, 3), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@given(jobs)
def test_a_job_alone_is_not_slowed(some):
    assert not WORLD.interference.slowdown(placed(MODELS, some[:1])).any()


@given(jobs, jobs)
def test_another_job_never_makes_tasks_faster(some, more):
    before = WORLD.interference.slowdown(placed(MODELS, some))
    after = WORLD.interference.slowdown(placed(MODELS, some + more))[: len(before)]
    assert (before >= 0).all()
    assert (after >= before - 1e-12).all()


@given(jobs, st.randoms(use_true_random=False))
def test_the_order_of_jobs_and_nodes_does_not_matter(some, random):
    order, nodes = (random.sample(range(count), count) for count in (len(some), 4))
    moved = [(some[n][0], *([2 * nodes[g // 2] + g % 2 for g in role] for role in some[n][1:])) for n in order]
    assert WORLD.rates(placed(MODELS, moved)) == pytest.approx(WORLD.rates(placed(MODELS, some))[order], rel=1e-9)


def test_cores_and_pcie_are_shared_as_the_paper_prints_it():
    """Four workers and a server of others lie on the other processor: 13 cores, of which 8 are its own."""
    others = [("vgg-16", [1, 1], [0]), ("vgg-16", [1, 1], [1])]
    where = placed(MODELS, [("ctc", [0], [0]), *others])
    loads = HAND.loads(where)
    assert [each[0] for each in loads] == [1 + (13 - 8), 3, 0, 5]
    assert [each[2] for each in loads] == [7 + 0, 3, 10, 5]  # with the other job's tasks; elsewhere are 4 of 8 cores
    assert HAND.slowdown(where)[0] == pytest.approx(0.1 * np.exp(0.2 * 6 + 0.3 * 3) - 0.05)
    cpu = 0.1 * np.exp(0.2 * 7 + 0.3 * 3) - 0.05
    assert HAND.slowdown(where)[2] == pytest.approx(cpu + 0.01 * 10 + 0.02 * 5 + 0.03)


def test_slowdowns_are_never_less_than_none():
    loads = Loads(*np.array([[0.1, 0.0, 0.1, 0.0]]).T)
    assert Coefficients((0.1, 0.1, 0.1, -5.0), (0.1, 0.1, -5.0)).slowdown(loads).tolist() == [0.0]


def test_a_step_is_computing_and_then_an_exchange():
    """Workers divide the batch; the slower link, shared by two flows, holds both servers' halves back."""
    calm = replace(WORLD.interference, coefficients=Coefficients((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)))
    world = replace(WORLD, interference=calm)
    profile, bits = PUBLISHED["vgg-16"], 553.4 / 125

    def rate(workers, servers):
        return world.rates(placed(MODELS, [("vgg-16", workers, servers)]))[0]

    assert rate([0], [0]) == pytest.approx(profile.batch / profile.alone_s)
    assert rate([0], [1]) == pytest.approx(profile.batch / (profile.alone_s + bits / 300))
    assert rate([0], [2]) == pytest.approx(profile.batch / (profile.alone_s + bits / 10))
    assert rate([0], [2, 4]) == pytest.approx(profile.batch / (profile.alone_s + bits / 2 / 5))
    assert rate([0, 2], [4]) == pytest.approx(profile.batch / (profile.alone_s / 2 + bits / 5))
    assert rate([0], []) == rate([], [0]) == 0


def test_the_slowest_worker_holds_the_others_back():
    alone, beside = ([("resnet-50", [0, 2], [2]), *others] for others in ([], [("vgg-16", [0], [0])]))
    slowed = WORLD.interference.slowdown(placed(MODELS, beside))[0]
    steps = [PUBLISHED["resnet-50"].batch / WORLD.rates(placed(MODELS, each))[0] for each in (alone, beside)]
    assert slowed > 0
    assert steps[1] - steps[0] == pytest.approx(PUBLISHED["resnet-50"].alone_s / 2 * slowed)


@pytest.mark.parametrize(("seed", "loss"), [(0, LOSS), (1, LOSS), (2, LOSS), (0, 0.0), (0, 0.5)])
def test_six_jobs_on_three_servers_lose_a_third_or_what_was_asked_for(seed, loss):
    machines = Machines.alike(HARMONY, 3)
    world = Formula.drawn(machines, flat_of(machines), PUBLISHED, seed, loss)
    lost = []
    for one, other in combinations(HARMONY_MODELS, 2):
        alone = [world.rates(placed(MODELS, [(model, [0], [0])]))[0] for model in (one, other)]
        lost += (1 - world.rates(placed(MODELS, [(one, [0], [0]), (other, [0], [0])])) / alone).tolist()
    assert np.mean(lost) == pytest.approx(loss, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_fits_miss_samples_in_the_order_of_table_three(seed):
    """The paper: 13.1, 22.9, 24.6, 27.5 and 36.3%; ours are 13, 14, 21, 31 and 41%. Noise makes the first one."""
    interference = FormulaInterference.drawn(MACHINES, PUBLISHED, seed)
    errors = fit_errors(interference, seed=seed)
    assert sorted(errors, key=errors.__getitem__) == ["own form", "quadratic", "linear", "without PCIe", "without CPU"]
    assert errors["own form"] == pytest.approx(0.131, abs=0.015)
    assert fit_errors(interference, noise=0.0, seed=seed)["own form"] < 0.05


@pytest.mark.parametrize("network", NetworkType)
def test_many_places_of_a_job_are_rated_as_each_of_them_alone(network):
    """Tasks of all jobs are mixed, and the job's number chooses its flows' paths."""
    scenario, rng = Scenario.graph(network, small=True, oversubscription=4.0), np.random.default_rng(0)
    groups = len(scenario.machines.sockets) // 2
    tasks = np.array([(job, role, rng.integers(groups)) for job in range(20) for role in (0, 0, 1, 1)])
    job, role, group = rng.permutation(tasks).T.copy()
    model, number = rng.integers(len(MODELS), size=20), rng.permutation(50)[:20]
    tries = rng.integers(groups, size=(12, 4))
    found = scenario.world.tried(PlacementArrays(model, job, role, group, number), 7, tries)
    for row, places in enumerate(tries):
        group[job == 7] = places
        expected = scenario.world.rates(PlacementArrays(model, job, role, group, number))
        assert found[row] == pytest.approx(expected, rel=1e-12)
    assert np.ptp(found[:, 7]) > 0
    assert np.ptp(np.delete(found, 7, axis=1), axis=0).max() > 0
