"""An order to save that came to nothing: nodes hear of it by the next one, and take back what they wrote."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.checkpoints.saving import SAVE_SECONDS
from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.model import Tensor
from tests.coordinator.played_job import DATA, World


def saving(world):
    """A checkpoint that nodes have been told to save."""
    for _ in range(5):
        if world.state.saving is not None and world.state.saving.clock is not None:
            return world.state.saving
        world.turn()
    raise AssertionError(world.describe())


def asked(world):
    world.turn()
    world.ask(ev.CheckpointAsked)
    return saving(world)


def until_written(world):
    """Until the manifest is being written."""
    while not world.state.saving.writing:
        world.turn()


def manifest_fails(world, pending):
    until_written(world)
    world.post(ev.ManifestWritten(world.now, pending.url, error="s0 says that it wrote s0.bin, which is not here"))


def node_fails(world, pending):
    world.post(na.Saved(world.now, min(world.state.job.holders), pending.clock, '{"error": "full"}'))


def is_late(world, pending):
    world.post(na.Late(world.now, "s0", ConfigId(1, 1), pending.clock + 3))


def has_grown(world, _pending):
    world.declare(world.node("w0"), (Tensor(0, "i:new", (16,), "float32"),), DATA)
    world.post(na.Extended(world.now, "s0", world.state.job.growth))


@pytest.mark.parametrize("end", [manifest_fails, node_fails, is_late, has_grown])
def test_the_next_order_names_what_came_to_nothing(end):
    """Where each machine had a folder of its own, a copy of the model stayed there each minute."""
    world = World(2, 1, checkpoint="/ck")
    first = asked(world)
    assert first.given_up == ""
    end(world, first)
    second = saving(world) if world.state.saving is not None else asked(world)
    assert (second.given_up, second.url != first.url) == (first.url, True)
    assert world.sent(ef.SaveBlocks, "s0")[-1] == ef.SaveBlocks(second.clock, second.url, first.url)


def test_without_servers_workers_hear_of_it():
    world = World(2, 0, checkpoint="/ck")
    first = asked(world)
    node_fails(world, first)
    second = asked(world)
    for worker in world.state.job.configuration.ranks:
        assert world.sent(ef.SaveBlocks, worker)[-1] == ef.SaveBlocks(second.clock, second.url, first.url)


def test_what_has_become_a_checkpoint_or_may_yet_is_not_named():
    world = World(2, 1, checkpoint="/ck")
    asked(world)
    world.saved()
    slow = asked(world)
    assert slow.given_up == ""
    until_written(world)
    for _ in range(int(SAVE_SECONDS / 5)):
        world.tick(5)
    assert "the storage did not write it" in world.state.unsaved
    assert asked(world).given_up == "", "its manifest may be written after all"


def test_where_the_job_has_gone_back_nothing_is_named():
    """It may save that version again."""
    world = World(2, 2, checkpoint="/ck")
    asked(world)
    world.saved()
    asked(world)
    world.kill(world.node("s1"))
    world.launcher()
    assert world.state.job.loading
    assert world.state.ordered == ""
