"""Who is silent for too long is expelled, unless most are, or the coordinator itself did not run."""

import pytest

from coordinator.core import events as ev
from coordinator.core.checkpoints.saving import SAVE_SECONDS
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase
from coordinator.core.state import ReportedWait
from tests.coordinator.core.nodes.troubled_jobs import mended, passing, told, unreplaced, with_checkpoint
from tests.coordinator.played_job import World


def test_a_member_that_falls_silent_is_expelled_though_nobody_complains_about_it():
    world = unreplaced(3, 1)
    assert "w1" in passing(world, 14, "w1"), "a lease and a grace"
    assert "w1" not in passing(world, 2, "w1")
    assert world.state.job.configuration.ranks.keys() == {"w0", "w2"}
    assert any("w1 is gone: it has been silent for 16 s" in line for line in world.logs)


def test_a_member_that_a_peer_cannot_reach_either_is_expelled_when_its_lease_runs_out():
    world = unreplaced(3, 1)
    world.node("s0").waits.append(ReportedWait("w1", "no answer to a probe", world.now, unreachable=True))
    assert "w1" in passing(world, 9, "w1")
    assert "w1" not in passing(world, 2, "w1")


def test_a_complaint_that_is_not_repeated_does_not_count_any_more():
    world = World(3, 1)
    world.node("s0").waits.append(ReportedWait("w1", "connection reset", world.now, unreachable=True))
    passing(world, 2)
    mended(world)
    assert "w1" in passing(world, 13, "w1"), "only silence speaks against it"


def test_a_server_that_falls_silent_sends_the_job_back_to_its_checkpoint():
    world = with_checkpoint(World(2, 2, checkpoint="file:///nowhere"))
    passing(world, 16, "s1")
    assert world.state.job.phase is JobPhase.RESTORING
    assert "server s1 died (it has been silent for" in world.state.job.reason


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING, Phase.ARMED])
@pytest.mark.parametrize("name", ["w0", "w1", "w3"])
def test_a_worker_that_freezes_in_any_phase_of_a_plan_does_not_stop_it(phase, name):
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 4, 2)
    if phase is Phase.REGISTERED:
        world.launcher()
    else:
        world.until(phase)
    frozen = world.node(name)
    assert frozen is not None
    begun = world.now
    while name in world.state.job.nodes:
        passing(world, 0.5, name)
        assert world.now - begun < 17, f"nobody blames {name}: {world.describe()}"
    world.kill(frozen)  # as its launcher does
    world.settle()
    assert world.counts == (4, 2)


def test_launchers_are_told_whose_processes_are_to_be_killed():
    world = World(4, 1)
    nonces = [world.node(name).nonce for name in ("w1", "w2")]
    world.kill(world.node("w0"))
    world.launcher()
    passing(world, 16, "w1")
    world.ask(ev.EvictAsked, "w2")
    assert list(world.wanted.expelled) == nonces, "not w0's, which was seen to end"
    assert list(world.wanted.evicted) == nonces[1:], "which is no failure"


def test_a_drain_of_a_frozen_node_ends():
    world = World(3, 1)
    world.ask(ev.DrainAsked, "w1")
    assert "w1" not in passing(world, 20, "w1")
    world.kill(world.node("w1"))
    world.settle()
    assert world.counts == (2, 1)


def test_when_most_fall_silent_the_coordinator_doubts_itself_for_three_leases_and_then_acts():
    world = unreplaced(4, 1)
    world.post(ev.Attached(world.now, 1))
    assert len(passing(world, 35, "w1", "w2", "w3")) == 5
    assert any("3 of 5 leases ran out together" in line for line in world.logs)
    assert passing(world, 10, "w1", "w2", "w3") == {"w0", "s0"}


def test_a_coordinator_that_hears_nobody_at_all_decides_nothing():
    world = World(2, 1)
    world.post(ev.Attached(world.now, 1))
    world.post(ev.Attached(world.now, -1))
    names = {node.id for node in world.alive}
    assert passing(world, 100, *names) == names
    assert len(told(world)) == 3


def test_nodes_that_come_back_within_the_doubt_are_kept():
    world = World(3, 1)
    assert len(passing(world, 20, "w0", "w1", "w2")) == 4
    passing(world, 1)
    assert not world.state.doubted_since
    assert len(passing(world, 20)) == 4
    assert world.plan is None


def test_after_a_silence_of_its_own_the_coordinator_gives_everybody_a_new_lease():
    world = World(3, 1)
    passing(world, 1)
    world.tick(500)  # it was stopped, or its machine was
    assert set(world.state.job.nodes) == {"w0", "w1", "w2", "s0"}
    assert any("the coordinator did not run for 500 s" in line for line in world.logs)
    assert "w1" in passing(world, 14, "w1"), "it may not have heard it meanwhile"
    assert "w1" not in passing(world, 2, "w1")


def test_time_in_which_the_coordinator_did_not_run_is_no_time_to_save_in():
    world = World(2, 1, checkpoint="/ck")
    passing(world, 1)
    world.ask(ev.CheckpointAsked)
    world.tick(SAVE_SECONDS + 1.0)
    assert world.saved().manifest.version > 0


def test_a_coordinator_that_did_not_run_before_its_first_tick_gives_everybody_a_new_lease():
    world = World(3, 1)
    passing(world, 1)
    world.kill_coordinator()
    world.tick(20)
    assert "w1" in passing(world, 14, "w1"), "it may not have heard it meanwhile"
    assert "w1" not in passing(world, 2, "w1")


def test_who_comes_back_later_than_most_has_a_lease_for_it():
    """The way to the coordinator was shut, and is open again: not everybody is heard in the same moment."""
    world = unreplaced(3, 2)
    passing(world, 20, "w0", "w1", "w2")
    assert "w2" in passing(world, 14, "w2")
    assert "w2" not in passing(world, 2, "w2")
