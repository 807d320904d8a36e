"""Checkpoints are dated in the order in which they are written, whatever the coordinators' clocks say."""

from dataclasses import replace

import pytest

from coordinator.core import events as ev
from coordinator.core.checkpoints.ending import restored
from tests.coordinator.played_job import World


def saved(world):
    world.turn()
    world.ask(ev.CheckpointAsked)
    return world.saved()


def test_a_coordinator_whose_clock_is_behind_dates_its_checkpoint_later_than_the_one_before():
    world = World(2, 1, checkpoint="/ck")
    first = saved(world).manifest
    world.now -= 3600.0
    world.kill_coordinator()
    world.settle()
    second = saved(world).manifest
    assert second.version > first.version
    assert second.written == first.written + 1.0
    assert saved(world).manifest.written == first.written + 2.0


@pytest.mark.parametrize("ahead", [0.0, 7200.0])
def test_what_follows_a_checkpoint_that_was_restored_is_dated_later_than_it(ahead):
    world = World(2, 1, checkpoint="/ck")
    manifest = saved(world).manifest
    manifest = replace(manifest, written=manifest.written + ahead)
    world.state = replace(world.state, job=restored(replace(world.state.job, written=0.0), "/ck/a", manifest, term=2))
    assert world.state.job.written == manifest.written


def test_no_own_checkpoint_is_dated_before_the_job_began():
    """Else it would be taken for one of a run that was given up."""
    world = World(2, 1, checkpoint="/ck")
    began = world.now + 3600.0
    world.state = replace(world.state, job=replace(world.state.job, since=began))
    assert saved(world).manifest.written == began
