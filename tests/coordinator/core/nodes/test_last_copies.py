"""Nodes without which a job that has no checkpoint would fail: it waits for them, and not for ever."""

import pytest

from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.core.nodes.failure_detection import LONG_SECONDS
from tests.coordinator.core.nodes.lost_journals import lost
from tests.coordinator.core.nodes.replicated_jobs import MODES, check_survived, replicated
from tests.coordinator.core.nodes.troubled_jobs import cut, mended, passing, told, unreplaced, with_checkpoint
from tests.coordinator.played_job import World

LEASE = 3.0


def pair(data=MODES[0], **settings):
    """Each of two servers has all blocks, as their owner or follower; a launcher would hear what is decided."""
    world = replicated(2, 2, data=data, lease=LEASE, **settings)
    world.post(ev.Attached(world.now, 1))
    return world


@pytest.mark.parametrize("data", MODES)
def test_owner_and_follower_that_freeze_together_lose_nothing(data):
    world = pair(data)
    assert passing(world, 10, "s0", "s1") == {"w0", "w1", "s0", "s1"}
    passing(world, 2)
    assert not told(world)
    check_survived(world)
    assert world.state.job.nodes.keys() == {"w0", "w1", "s0", "s1"}


def test_who_froze_together_need_not_have_reported_together():
    world = pair()
    passing(world, 1, "s0")
    assert passing(world, 10, "s0", "s1") == {"w0", "w1", "s0", "s1"}


@pytest.mark.parametrize("data", MODES)
def test_who_has_the_last_copy_is_waited_for_when_the_other_has_died(data):
    world = pair(data)
    world.kill(world.node("s0"))
    world.launcher()
    assert "s1" in passing(world, 20, "s1")
    passing(world, 1)
    world.settle()
    assert world.state.job.configuration.servers[0].id == "s1"
    check_survived(world)


def test_the_one_that_comes_back_goes_on_without_the_other():
    world = pair()
    passing(world, 20, "s0", "s1")
    assert passing(world, LEASE - 1, "s1") == {"w0", "w1", "s0", "s1"}, "it may be heard a moment later"
    assert passing(world, 2, "s1") == {"w0", "w1", "s0"}
    world.kill(world.node("s1"))
    world.settle()
    check_survived(world)


def test_who_is_heard_a_moment_after_the_other_is_no_more_expelled_than_that_one():
    world = pair()
    passing(world, 20, "s0", "s1")
    passing(world, 1, "s1")
    assert passing(world, 5) == {"w0", "w1", "s0", "s1"}
    check_survived(world)


def test_two_that_come_and_go_in_turn_are_not_waited_for_without_end():
    world = pair()
    nodes = passing(world, 20, "s0", "s1")
    for _ in range(200):
        passing(world, LEASE - 1, "s1")
        nodes = passing(world, LEASE - 1, "s0", "s1")
    assert "s1" not in nodes


def test_who_never_comes_back_ends_the_job_and_people_know_when():
    world = pair()
    heard = world.now
    passing(world, 30, "s0", "s1")
    assert "s1 has been silent for 30 s: s1 is expelled, and the job fails without it, in 570 s" in told(world)
    passing(world, LONG_SECONDS - 31, "s0", "s1")
    assert world.state.job.phase is JobPhase.RUNNING
    passing(world, 2, "s0", "s1")
    assert world.state.job.phase is JobPhase.FAILED
    assert "it has been silent for 600 s), and the job has no checkpoint" in world.state.job.reason
    assert world.now - heard < LONG_SECONDS + 2


def test_with_a_checkpoint_the_job_goes_back_to_it():
    world = with_checkpoint(pair(checkpoint="file:///nowhere"))
    passing(world, 10, "s0", "s1")
    assert world.state.job.phase is JobPhase.RESTORING


def test_a_server_that_all_workers_have_lost_has_as_long_to_be_reached_again():
    world = unreplaced(2, 1, lease=LEASE)
    for worker in ("w0", "w1"):
        cut(world, worker, "s0")
    assert len(passing(world, 60)) == 3
    mended(world)
    passing(world, 5)
    assert not told(world)


def test_nobody_waits_for_the_last_server_of_a_job_without_parameters():
    world = World(2, 1, lease=LEASE, declare=False)
    world.settle()
    assert "s0" not in passing(world, 10, "s0")


@pytest.mark.parametrize("again", [False, True])
def test_a_job_whose_journal_was_lost_may_have_checkpoints_that_it_does_not_know(again):
    world = pair(checkpoint="/ck")
    lost(world)
    passing(world, 5)
    assert world.state.job.phase is JobPhase.RUNNING
    if again:
        world.kill_coordinator()
    passing(world, 4 * LEASE, "s0", "s1")
    assert world.state.job.loading, "it looks for them"
