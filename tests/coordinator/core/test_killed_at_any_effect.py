"""A coordinator killed at every boundary between two effects: of a whole scaling out and in, of a server's death."""

import pytest

from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.core.plans.protection import protection
from elastic_ps.core.configuration import Role
from tests.coordinator.played_job import DATA, SSP, World
from tests.sweeps import sweep


def scale_out_and_in(world, turns):
    for count in (2, 1):
        world.ask(ev.ScaleAsked, count, count)
        for _ in range(turns):
            world.turn()


def effects_of(data, turns):
    world = World(1, 1, data=data)
    before = len(world.effects)
    scale_out_and_in(world, turns)
    return len(world.effects) - before


def killed_job(data, turns, at):
    """A job at rest whose coordinator was killed when it had done `at` effects of the scalings."""
    world = World(1, 1, data=data)
    world.kill_after = at
    scale_out_and_in(world, turns)
    world.settle()
    assert world.kill_after is None, "nobody was killed"
    assert world.state.job.phase is JobPhase.RUNNING
    assert {node.role for node in world.alive} == set(Role)
    return world


@pytest.mark.parametrize("at", sweep(range(effects_of(DATA, 12))))
def test_killed_at_any_effect_the_job_ends_as_it_should(at):
    world = killed_job(DATA, 12, at)
    assert world.counts in ((1, 1), (2, 2)), world.describe()


@pytest.mark.parametrize("at", sweep(range(0, effects_of(SSP, 8), 2)))
def test_killed_at_any_effect_each_batch_is_done_once(at):
    """Every second boundary, draws among them."""
    world = killed_job(SSP, 8, at)
    world.check_batches(world.state.book.epoch + 1)


def lose_a_server(world, turns):
    """A server dies, its followers own its blocks, another one comes in its place."""
    world.kill(world.node("s1"))
    for _ in range(turns):
        world.turn()


def effects_of_a_death(data, turns):
    world = World(2, 3, data=data, replicas=1)
    before = len(world.effects)
    lose_a_server(world, turns)
    return len(world.effects) - before


@pytest.mark.parametrize("at", sweep(range(effects_of_a_death(DATA, 12))))
def test_killed_at_any_effect_of_a_servers_death_nothing_is_restored(at):
    world = World(2, 3, replicas=1)
    world.kill_after = at
    lose_a_server(world, 12)
    world.settle()
    assert world.kill_after is None, "nobody was killed"
    assert (world.state.job.phase, world.state.job.term) == (JobPhase.RUNNING, 2), world.describe()
    assert world.counts == (2, 3), world.describe()
    found = protection(world.state.job)
    assert found.blocks == found.all_blocks > 0
