"""Two nodes that report and cannot reach each other: which of them goes, and when neither does."""

from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.core.nodes.removals import removal_cost
from coordinator.core.plans.plan import Phase
from coordinator.core.state import ReportedWait
from tests.coordinator.core.nodes.troubled_jobs import cut, mended, passing, told, unreplaced, with_checkpoint
from tests.coordinator.played_job import World, text

# ---- separation ------------------------------------------------------------------------------------------------------


def test_a_worker_and_a_server_that_cannot_reach_each_other_while_both_report_are_parted_within_a_lease():
    world = unreplaced(3, 2)
    cut(world, "w1", "s1")
    assert "w1" in passing(world, 9)
    assert passing(world, 2) == {"w0", "w2", "s0", "s1"}, "a worker's leaving loses nothing"
    assert any("w1 is gone: it has had no way to s1" in line for line in world.logs)


def test_one_direction_is_enough():
    world = unreplaced(3, 2)
    world.node("s1").waits.append(ReportedWait("w2", "its pushes of version 4", world.now, unreachable=True))
    assert passing(world, 11) == {"w0", "w1", "s0", "s1"}


def test_what_is_mended_in_time_parts_nobody():
    world = World(3, 2)
    cut(world, "w1", "s1")
    passing(world, 8)
    mended(world)
    assert len(passing(world, 20)) == 5
    assert world.plan is None


def test_a_frozen_node_is_not_taken_for_one_that_is_apart():
    """Its peers cannot reach it; who of them leaves for it would be a mistake."""
    world = with_checkpoint(World(1, 2, checkpoint="file:///nowhere"))
    world.node("w0").waits.append(ReportedWait("s1", "no answer to a probe", world.now, unreachable=True))
    passing(world, 12, "s1")
    assert "w0" in world.state.job.nodes
    assert "server s1 died" in world.state.job.reason


def test_who_has_told_of_another_and_then_stopped_is_no_witness():
    """It could not take it back. Found by the simulated world (860482): the way had just been mended."""
    world = unreplaced(3, 2)
    world.node("s1").waits.append(ReportedWait("w1", "no answer to a probe", world.now, unreachable=True))
    passing(world, 7)
    assert any("w1 has had no way to s1" in line for line in told(world))
    assert "w1" in passing(world, 20, "s1")
    assert any("s1 has been silent" in line for line in told(world))


def test_no_plan_is_armed_onto_a_server_that_a_member_cannot_reach():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    world.until(Phase.ASSIGNED)
    world.replace_dead = False
    cut(world, "w1", "s1")
    for _ in range(20):
        passing(world, 0.5)
        assert world.plan is None or world.plan.phase is not Phase.ARMED
    passing(world, 3)
    assert "s1" not in world.state.job.nodes, "it is no member yet: the one that costs least"
    assert {"w0", "w1", "s0"} == set(world.state.job.members)
    assert world.records[-1].phase is Phase.CANCELLED


# ---- what the coordinator could not hear -------------------------------------------------------------------------


def check_nobody_goes_once_mended(world):
    mended(world)
    passing(world, 20)
    assert world.state.job.phase is JobPhase.RUNNING, world.state.job.reason
    assert world.state.job.nodes.keys() == {"w0", "w1", "s0", "s1"}


def test_a_server_that_was_stopped_together_with_the_coordinator_is_not_taken_for_one_that_is_apart():
    """Their machine stood still: workers elsewhere told meanwhile, truly, that they cannot reach the server."""
    world = World(2, 2, checkpoint="file:///nowhere")
    passing(world, 1)
    lost = world.now
    world.now += 60
    for name in ("w0", "w1"):
        world.node(name).waits.append(ReportedWait("s1", "no answer to a probe", lost, unreachable=True))
    world.tick()
    passing(world, 3)  # reports that were on their way, until probes are answered again
    check_nobody_goes_once_mended(world)


def test_a_server_whose_virtual_machine_was_paused_with_the_coordinators_is_not_blamed_at_once():
    """All clocks of such a machine may stand still: no tick shows that the others' hour has passed."""
    world = with_checkpoint(World(2, 2, checkpoint="file:///nowhere"))
    passing(world, 20)
    for name in ("w0", "w1"):
        world.node(name).waits.append(ReportedWait("s1", "no answer to a probe", world.now - 3600, unreachable=True))
    passing(world, 3)
    check_nobody_goes_once_mended(world)
    assert any("s1 is not waited for any more" in line for line in world.logs)


def test_who_is_told_of_for_the_first_time_is_expelled_half_a_lease_later():
    world = unreplaced(3, 2)
    passing(world, 20)
    world.node("w1").waits.append(ReportedWait("s1", "no answer to a probe", world.now - 3600, unreachable=True))
    assert "w1" in passing(world, 4.5)
    assert "w1" not in passing(world, 2)


def test_a_server_beside_the_coordinator_is_not_blamed_when_the_network_to_the_others_comes_back():
    world = World(2, 2, checkpoint="file:///nowhere")
    passing(world, 20, "w0", "w1", "s0")
    for name in ("w0", "w1", "s0"):
        world.node(name).waits.append(ReportedWait("s1", "no answer to a probe", world.now - 19, unreachable=True))
    passing(world, 2)
    check_nobody_goes_once_mended(world)


def test_who_was_silent_and_is_still_apart_when_it_is_heard_again_is_expelled_a_lease_later():
    world = unreplaced(3, 2)
    passing(world, 20)
    passing(world, 9, "w1")
    world.node("w1").waits.append(ReportedWait("s1", "no answer to a probe", world.now - 9, unreachable=True))
    assert "w1" in passing(world, 9)
    assert "w1" not in passing(world, 3)


def test_a_bad_way_to_the_coordinator_does_not_excuse_a_separation_without_end():
    world = unreplaced(3, 2)
    cut(world, "w1", "s1")
    for _ in range(4):
        passing(world, 6, "w1")
        passing(world, 0.5)
    assert "w1" not in world.state.job.nodes, "out within 30 s"


# ---- what an armed plan makes of nodes ----------------------------------------------------------------------------


def test_a_server_of_an_armed_plan_is_not_given_up_for_a_worker():
    world = unreplaced(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.replace_dead = True
    world.until(Phase.ARMED)
    world.replace_dead = False
    assert "s1" not in world.state.job.members
    cut(world, "w1", "s1")
    names = [node.id for node in world.alive]
    for _ in range(24):
        world.tick()
        for name in names:
            if world.node(name) is not None:
                world.report(world.node(name))
    assert "w1" not in world.state.job.nodes
    assert "s1" in world.state.job.nodes, "its loss ends a job without a checkpoint"
    assert not world.state.job.ended


def test_the_last_worker_of_an_armed_plan_is_not_given_up_for_a_server_that_holds_nothing():
    world = unreplaced(2, 1)
    world.ask(ev.ScaleAsked, 1, 1)
    world.until(Phase.ARMED)
    (leaver,) = world.plan.leavers
    stays = next(iter(world.plan.target.ranks))
    assert removal_cost(world.state.job, frozenset({stays})).restores
    assert not removal_cost(world.state.job, frozenset({leaver})).restores


def test_a_server_of_an_armed_plan_is_not_evicted_where_the_job_would_fail():
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.ARMED)
    assert "no checkpoint to go back to" in text(world.ask(ev.EvictAsked, "s1"))
    world.settle()
    assert world.counts == (3, 2)
