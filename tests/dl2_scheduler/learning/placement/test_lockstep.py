"""Clusters in lockstep: they say what one cluster of the simulator says, and what a policy reads is the same."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.errors import BadInput, Starved
from dl2_scheduler.learning.placement.compiled_speed import rate_job, speed_tables
from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.learning.placement.lockstep.clusters import spent
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep, next_role
from dl2_scheduler.policies.learnt.placer import LearntPlacer, place_by
from dl2_scheduler.policies.placement.draft import missing_tasks
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.samples import draw_samples
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.simulator import MOST_SLOTS
from tests.dl2_scheduler.learning.placement.fitted_world import fitted_scenario

SCENARIO = fitted_scenario()
MODELS = len(SCENARIO.profiles)


def policy(seed: int = 0, waits: float = -0.2) -> LearntPlacer:
    torch.manual_seed(seed)
    net = PlacerNet(MODELS)
    torch.nn.init.constant_(net.rest.bias, waits)
    return net.policy()


class Noting:
    """It keeps what a policy reads, and decides by it."""

    def __init__(self, decides: LearntPlacer):
        self.decides, self.seen = decides, []

    def place(self, view):
        return place_by(view, self._choose)

    def _choose(self, inputs):
        if inputs.allowed[:-1].any():
            self.seen.append(inputs)
        return self.decides.choose(inputs)


def test_a_job_is_rated_as_the_fitted_model_rates_it():
    world = SCENARIO.world
    tables = speed_tables(world)
    for where in draw_samples(SCENARIO.machines, SCENARIO.profiles, Scenario.harmony(3.0).world, 5, 1).clusters:
        kinds = np.zeros((6, 2 * MODELS), dtype=np.int64)
        np.add.at(kinds, (where.group, 2 * where.model[where.job] + where.role), 1)
        rates = []
        for job in range(len(where.model)):
            own = np.zeros((6, 2), dtype=np.int64)
            mine = where.job == job
            np.add.at(own, (where.group[mine], where.role[mine]), 1)
            first = int(where.group[mine & (where.role == 1)][0])
            rates.append(rate_job(tables, kinds, own, int(where.model[job]), first))
        assert rates == pytest.approx(world.rates(where), rel=1e-4)


@pytest.mark.parametrize("asked", [(1, 1), (3, 1), (1, 3), (2, 3)])
def test_roles_come_in_the_order_of_the_policy(asked):
    class View:
        missing = np.array([asked])

    counts, found = [0, 0], []
    while (role := next_role(*counts, np.array(asked))) >= 0:
        found.append(role)
        counts[role] += 1
    assert found == list(missing_tasks(View, 0))


@pytest.mark.parametrize("seed", range(3))
def test_clusters_in_lockstep_say_what_the_simulator_says(seed):
    """The same policy reads the same for each task, and all jobs end at the same times."""
    decides = policy(seed)
    sequences = [SCENARIO.jobs(seed + number) for number in range(3)]
    lockstep = Lockstep.begun(SCENARIO, sequences)
    read: list[list] = [[], [], []]

    def decide(groups, job, allowed, which):
        for row, cluster in enumerate(which):
            read[cluster].append((groups[row], job[row], allowed[row]))
        return decides.best_of(groups, job, allowed)

    lockstep.run(decide)
    for number, jobs in enumerate(sequences):
        noting = Noting(decides)
        times = SCENARIO.completion_times(FixedDemand(), noting, jobs)
        assert lockstep.times()[number] == pytest.approx(times, rel=1e-4)
        assert len(noting.seen) == len(read[number])
        for inputs, (groups, job, allowed) in zip(noting.seen, read[number], strict=True):
            assert groups == pytest.approx(inputs.groups, rel=1e-3, abs=1e-4)
            assert job == pytest.approx(inputs.job, rel=1e-3, abs=1e-4)
            assert (allowed == inputs.allowed).all()


def test_costs_of_intervals_sum_up_to_completion_times():
    """Which is why what is learnt from is the completion time, and no proxy of it."""
    decides, lockstep = policy(), Lockstep.begun(SCENARIO, [SCENARIO.jobs(n) for n in range(4)])
    lockstep.run(lambda groups, job, allowed, _: decides.best_of(groups, job, allowed))
    last = int(np.ceil(lockstep.clusters.finish.max()))
    each = spent(lockstep.clusters, np.zeros(4, dtype=np.int64), last)
    assert (each >= 0).all()
    assert each.sum(axis=1) == pytest.approx(lockstep.times().sum(axis=1))


def test_copies_go_their_own_ways():
    decides, lockstep = policy(), Lockstep.begun(SCENARIO, [SCENARIO.jobs(0)])
    copies = lockstep.copies(np.array([0, 0, 0]))
    first = np.flatnonzero(copies.inputs(np.array([0]))[2][0])
    chosen = np.array([first[0], first[1], first[0]])
    copies.choose(chosen)
    copies.run(lambda groups, job, allowed, _: decides.best_of(groups, job, allowed))
    times = copies.times()
    assert times[0].tolist() == times[2].tolist()
    assert np.isnan(lockstep.clusters.finish).all()


def test_a_run_stops_where_it_is_told():
    decides, lockstep = policy(), Lockstep.begun(SCENARIO, [SCENARIO.jobs(n) for n in range(3)])
    until = np.array([2, 4, 0])
    lockstep.run(
        lambda groups, job, allowed, _: decides.best_of(groups, job, allowed),
        lambda each: each.clusters.interval >= until,
    )
    assert (lockstep.clusters.interval >= until).all()
    assert lockstep.active.all()
    assert (lockstep.clusters.at[lockstep.active] < lockstep.clusters.waiting[lockstep.active]).all()


def test_worlds_that_are_not_fitted_are_refused():
    with pytest.raises(TypeError, match="PooledSpeed"):
        Lockstep.begun(Scenario.harmony(3.0), [SCENARIO.jobs(0)])


@pytest.mark.parametrize("change", [{"worker": {"cpu": 2.0, "gpu": 3.0}}, {"max_servers": 40}])
def test_a_job_that_fits_nowhere_is_refused_by_its_name(change):
    """Alone it would wait for ever; so would one of which no task, or not all of them, fit an empty cluster."""
    jobs = SCENARIO.jobs(0)
    jobs[3] = replace(jobs[3], **change)
    with pytest.raises(BadInput, match=rf"job 3, {jobs[3].model}, asks for {jobs[3].max_workers} workers of "):
        Lockstep.begun(SCENARIO, [jobs])


def test_a_policy_that_never_completes_a_job_is_stopped():
    """Workers on the first server and servers on the second: of two and two, the last one never fits."""
    scenario = fitted_scenario(jobs=1, servers=2)
    job = replace(scenario.jobs(0)[0], max_workers=2, max_servers=2, worker={"cpu": 6.0}, server={"cpu": 10.0})
    lockstep = Lockstep.begun(scenario, [[job]])
    lockstep.clusters.interval[:] = MOST_SLOTS - 4
    with pytest.raises(Starved):
        lockstep.run(lambda groups, job, allowed, _: job[:, 3 * MODELS].astype(int))
