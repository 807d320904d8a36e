"""A checkpoint that takes its time: which plans wait for it, what people are told, and what makes way."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.plans.plan import Phase
from coordinator.server.status_view import status
from tests.coordinator.played_job import ASYNC, DATA, World


def slow(world, *names):
    """These do not write a checkpoint's blocks for now."""
    for name in names:
        world.node(name).on_saveblocks = lambda _save: None
    return world


def quick(world, *names):
    for name in names:
        del world.node(name).on_saveblocks


def saving(world):
    """Run until the checkpoint that is due, or asked for, has a clock."""
    for _ in range(5):
        world.turn()
    assert world.state.saving is not None
    assert world.state.saving.clock is not None
    return world.state.saving


def manifests(world):
    return [effect for effect in world.effects if isinstance(effect, ef.WriteManifest)]


@pytest.mark.parametrize("data", [DATA, ASYNC], ids=["sync", "async"])
def test_a_plan_of_workers_does_not_wait_for_servers_that_save(data):
    world = slow(World(2, 2, checkpoint="/ck", checkpoint_interval=60.0, data=data), "s1")
    world.tick(60)
    url = saving(world).url
    for count in (3, 1):
        world.ask(ev.ScaleAsked, count, 0)
        world.settle()
        assert world.counts == (count, 2)
    assert world.state.saving.url == url
    quick(world, "s1")
    world.kill_coordinator()
    world.tick(60)
    world.saved()


def test_workers_that_hold_the_parameters_finish_their_save_first():
    world = slow(World(2, 0, checkpoint="/ck"), "w1")
    world.ask(ev.CheckpointAsked)
    saving(world)
    world.ask(ev.ScaleAsked, 3, 0)
    for _ in range(20):
        world.turn()
    assert world.plan.phase is Phase.SYNCING


def test_a_checkpoint_of_the_interval_makes_way_for_a_server_that_leaves():
    world = slow(World(1, 2, checkpoint="/ck", checkpoint_interval=60.0), "s1")
    world.tick(60)
    first = saving(world)
    assert "s0" in first.saved
    world.ask(ev.DrainAsked, "s1")
    world.settle()
    assert world.counts == (1, 1)
    assert any(f"checkpoint {first.url} is put off" in line for line in world.logs)
    (written,) = manifests(world)
    assert written.url != first.url, "servers repeat what they answered of a folder"
    assert {entry["file"] for entry in written.manifest.blocks.values()} == {"s0.bin"}


def test_a_checkpoint_is_put_off_once():
    """Plan after plan could keep a job from ever saving: the second one waits for it, and the status says so."""
    world = slow(World(1, 3, checkpoint="/ck", checkpoint_interval=60.0), "s0", "s1", "s2")
    world.tick(60)
    saving(world)
    world.ask(ev.DrainAsked, "s2")
    for _ in range(60):
        world.turn()
    assert world.counts == (1, 2)
    again = saving(world)
    world.ask(ev.DrainAsked, "s1")
    for _ in range(20):
        world.turn()
    assert world.plan.phase is Phase.SYNCING
    assert world.state.saving.url == again.url
    assert any(f"has not saved its blocks of {again.url}" in line for line in status(world.state, world.now).waiting)


def test_a_checkpoint_that_a_stop_waits_for_is_not_put_off():
    world = slow(World(1, 2, checkpoint="/ck", checkpoint_interval=60.0), "s0", "s1")
    world.tick(60)
    first = saving(world)
    world.ask(ev.StopAsked, False, "stopped at noon")
    world.ask(ev.DrainAsked, "s1")
    for _ in range(40):
        world.turn()
    assert world.state.saving.url == first.url


def test_what_a_server_says_of_a_checkpoint_that_was_put_off_counts_for_nothing():
    world = slow(World(1, 2, checkpoint="/ck", checkpoint_interval=60.0), "s0", "s1")
    world.tick(60)
    first = saving(world)
    world.ask(ev.DrainAsked, "s1")
    world.until(Phase.ARMED)
    order = world.sent(ef.SaveBlocks, "s0")[0]
    assert order.url == first.url
    quick(world, "s0")
    world.node("s0").handle(order)
    world.settle()
    assert [written.url for written in manifests(world)] == [world.state.saving.url] != [first.url]


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "of the interval"])
def test_who_keeps_a_plan_waiting_by_a_checkpoint_is_named(asked):
    world = slow(World(1, 2, checkpoint="/ck", checkpoint_interval=60.0), "s1")
    if asked:
        world.ask(ev.CheckpointAsked)
    else:
        world.tick(60)
    url = saving(world).url
    assert not any("has not saved" in line for line in status(world.state, world.now).waiting)
    world.ask(ev.ScaleAsked, 1, 3)
    for _ in range(20):
        world.turn()
    assert world.plan.phase is Phase.SYNCING, "who joins takes over blocks that are being saved"
    (line,) = status(world.state, world.now).waiting
    assert line.startswith(f"s1 has not saved its blocks of {url} yet for ")
    quick(world, "s1")
    world.post(ev.Listening(world.now, "s1", world.node("s1").number, world.node("s1").version))
    world.saved()
    world.settle()
    assert world.counts == (1, 3)


def test_a_plan_does_not_wait_for_the_manifest():
    world = World(1, 2, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    asked = world.asked
    saving(world)
    assert world.state.saving.writing
    world.ask(ev.ScaleAsked, 1, 1)
    world.settle()
    assert world.counts == (1, 1)
    url = world.state.saving.url
    world.post(ev.ManifestWritten(world.now, url, 10))
    assert world.replies[asked].url == url


def test_a_stop_says_what_it_waits_for():
    world = slow(World(1, 2, checkpoint="/ck"), "s1")
    world.ask(ev.CheckpointAsked)
    url = saving(world).url
    world.ask(ev.StopAsked, False, "stopped at noon")
    for _ in range(10):
        world.turn()
    reply = status(world.state, world.now)
    assert reply.reason.startswith(f"stopped at noon: it ends when its checkpoint is written ({url})")
    assert reply.waiting[0].startswith(f"s1 has not saved its blocks of {url} yet")
    quick(world, "s1")
    world.post(ev.Listening(world.now, "s1", world.node("s1").number, world.node("s1").version))
    for _ in range(10):
        world.turn()
    (line,) = status(world.state, world.now).waiting
    assert line.startswith(f"the storage has not taken the manifest of {url} yet")
    world.post(ev.ManifestWritten(world.now, url, 10))
    assert (world.state.job.phase, world.state.job.reason) == ("finished", "stopped at noon")
