"""These tests try to beat the places that a job may have with a cluster to itself."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import GRAPH_NARROW, GRAPH_UNEVEN, HARMONY, Machines, amounts
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.sim.placed.alone import places_alone
from dl2_scheduler.sim.placed.calibrate import placed
from dl2_scheduler.sim.placed.placed_speed import Mechanistic
from dl2_scheduler.sim.placed.scenario import Scenario

SCENARIO = Scenario.harmony(2.0)


def _demand(model: str) -> np.ndarray:
    profile = SCENARIO.profiles[model]
    return np.array([amounts(profile.worker), amounts(profile.server)])


def _room(machines: Machines, demand: np.ndarray, workers: list[int], servers: list[int]) -> np.ndarray:
    free = machines.capacity.copy()
    for role, groups in enumerate((workers, servers)):
        np.subtract.at(free, groups, demand[role])
    return free


@pytest.mark.parametrize("model", ["wlm", "vgg-16", "ctc"])
@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 2)])
def test_no_place_is_faster_than_the_best_of_them(model: str, counts: tuple[int, int]):
    """All assignments of tasks to so many nodes are tried, as far as they have room."""
    workers, nodes = counts[0], 4 if sum(counts) < 5 else 3
    machines = Machines.alike(HARMONY, nodes)
    small = replace(SCENARIO, machines=machines, topology=flat_of(machines))
    small = replace(small, world=Mechanistic(machines, small.topology, small.profiles))
    best, models, demand = 0.0, sorted(small.profiles), _demand(model)
    for groups in product(range(nodes), repeat=sum(counts)):
        where = list(groups[:workers]), list(groups[workers:])
        if (_room(machines, demand, *where) >= 0).all():
            best = max(best, float(small.world.rates(placed(models, [(model, *where)]))[0]))
    assert small.speed_alone(model, *counts) == pytest.approx(best)


@pytest.mark.parametrize("model", ["wlm", "vgg-16", "ctc"])
def test_places_have_room_and_all_tasks(model: str):
    machines, demand = Machines((GRAPH_UNEVEN, GRAPH_NARROW, GRAPH_UNEVEN)), _demand(model)
    found = list(places_alone(machines, flat_of(machines), demand, (3, 2)))
    assert len({(tuple(workers), tuple(servers)) for workers, servers in found}) == len(found) > 10
    for workers, servers in found:
        assert (len(workers), len(servers)) == (3, 2)
        assert (_room(machines, demand, workers, servers) >= 0).all()


def test_a_lone_node_of_its_kind_has_no_neighbours():
    machines = Machines((GRAPH_UNEVEN, GRAPH_NARROW))
    found = list(places_alone(machines, flat_of(machines), _demand("wlm"), (2, 2)))
    assert {group for places in found for groups in places for group in groups} == {0, 1, 2}
    assert all({*workers, *servers} <= {0, 1} or {*workers, *servers} == {2} for workers, servers in found)


def test_a_job_that_fits_nowhere_is_refused():
    with pytest.raises(BadInput, match="13 workers and 1 servers of wlm fit nowhere"):
        SCENARIO.speed_alone("wlm", 13, 1)
