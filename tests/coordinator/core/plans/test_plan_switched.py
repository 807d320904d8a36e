"""From SYNCING to COMMITTED: the clock, who switches when, and what is sent again."""

from dataclasses import replace

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.nodes.delays import delays
from coordinator.core.plans.plan import MigrationMode, Phase
from coordinator.server.status_view import status
from tests.coordinator.played_job import World


def test_the_clock_is_a_step_boundary_ahead_of_every_version():
    world = World(2, 1)
    for _ in range(7):
        world.turn()
    world.ask(ev.ScaleAsked, 2, 2)
    plan = world.until(Phase.ARMED)
    assert plan.clock > max(node.version for node in world.alive)


def test_late_sets_a_later_clock_for_all_while_nobody_has_switched():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    first = world.until(Phase.ARMED)
    world.post(na.Late(world.now, "w0", first.number, first.clock + 5))
    assert world.plan.clock > first.clock + 5
    assert world.plan.rearms == 1
    assert {arm.clock for arm in world.sent(ef.Arm, "s0")} == {first.clock, world.plan.clock}
    second = world.plan
    world.post(na.Late(world.now, "w1", first.number, first.clock + 1))
    assert world.plan == second, "an answer to the order before the last changes nothing"
    world.settle()


def test_from_the_first_switched_nobody_is_armed_any_more():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    plan = world.until(Phase.ARMED)
    world.post(na.Switched(world.now, "w0", plan.number, plan.clock))
    world.post(na.Late(world.now, "w1", plan.number, plan.clock + 9))
    assert world.plan.clock == plan.clock
    adopt = ef.Adopt(plan.number)
    assert adopt not in world.sent(ef.Adopt, "w0")
    assert adopt in world.sent(ef.Adopt, "w1")
    assert adopt in world.sent(ef.Adopt, "s1")


def test_a_leavers_exit_is_a_switch():
    world = World(2, 1)
    world.ask(ev.DrainAsked, "w1")
    plan = world.until(Phase.ARMED)
    world.kill(world.node("w1"), 0)
    world.launcher()
    assert world.plan.decided
    assert world.sent(ef.Adopt, "w0")
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[-1].id == plan.id
    assert world.records[-1].phase is Phase.COMMITTED


def test_committed_comes_after_the_first_step_of_the_new_configuration():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2)
    plan = world.until(Phase.ARMED)
    for name in ("w0", "s0", "s1"):
        world.post(na.Switched(world.now, name, plan.number, plan.clock))
    assert world.state.job.configuration == plan.target
    assert world.plan.phase is Phase.ARMED, "frozen copies may still be needed"
    world.post(ev.Reported(world.now, "w0", plan.clock))
    assert world.plan is not None
    world.post(na.Arrived(world.now, "s1", plan.number))
    assert world.plan is not None
    world.post(ev.Reported(world.now, "w0", plan.clock + 1))
    assert world.plan is None
    assert world.sent(ef.Committed, "s0")[-1].number == plan.number


def test_a_jobs_rate_is_that_of_the_configuration_in_force_once_all_workers_have_told_theirs():
    world = World(1, 1)
    world.post(ev.Reported(world.now, "w0", world.node("w0").version, rate=10.0))
    assert status(world.state, world.now).rate == 10.0
    world.ask(ev.ScaleAsked, 2, 1)
    plan = world.until(Phase.ARMED)
    assert status(world.state, world.now).rate == 10.0
    for name in ("w0", "w1", "s0"):
        world.post(na.Switched(world.now, name, plan.number, plan.clock))
    assert status(world.state, world.now).rate == 0.0, "that was the speed of one worker"
    world.post(ev.Reported(world.now, "w0", plan.clock + 1, rate=9.0))
    assert status(world.state, world.now).rate == 0.0, "the other one has told nothing yet"
    world.post(ev.Reported(world.now, "w1", plan.clock + 1, rate=9.0))
    assert status(world.state, world.now).rate == 18.0


def test_a_coordinator_that_has_begun_again_tells_no_rate_before_it_has_heard_all_workers():
    world = World(2, 1)
    for name in ("w0", "w1"):
        world.post(ev.Reported(world.now, name, world.node(name).version, rate=9.0))
    assert status(world.state, world.now).rate == 18.0
    heard = {name: vitals for name, vitals in world.state.vitals.items() if name != "w1"}
    assert status(replace(world.state, vitals=heard), world.now).rate == 0.0


def test_where_workers_are_past_the_clock_committed_waits_for_the_new_owner():
    """An old owner lets go of blocks and of the way to the new one at COMMITTED: a hand-over may be on that way yet."""
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2)
    plan = world.until(Phase.ARMED)
    world.post(na.Switched(world.now, "s1", plan.number, plan.clock))
    world.post(na.Late(world.now, "w0", plan.number, plan.clock + 1))
    assert world.plan.decided, "somebody has switched: there is no later clock"
    world.post(ev.Reported(world.now, "w0", plan.clock + 1))
    for name in ("w0", "s0"):
        world.post(na.Switched(world.now, name, plan.number, plan.clock + 1))
    assert world.plan is not None
    assert [(delay.node, delay.why) for delay in delays(world.state, world.now)] == [
        ("s1", f"does not hold its new blocks yet (plan {plan.id})")
    ]
    world.post(na.Arrived(world.now, "s1", plan.number))
    assert world.plan is not None, (
        "the script may read the version at which it has switched, and its old owner holds it"
    )
    world.post(ev.Reported(world.now, "w0", plan.clock + 2))
    assert world.plan is None


def test_committed_waits_for_the_first_step_of_each_worker_whose_script_goes_on():
    """Who has not made it yet may still take rows over from values that old owners hold."""
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    plan = world.until(Phase.ARMED)
    for name in ("w0", "w1", "w2", "s0", "s1"):
        world.post(na.Switched(world.now, name, plan.number, plan.clock))
    world.post(na.Arrived(world.now, "s1", plan.number))
    world.post(ev.Reported(world.now, "w0", plan.clock + 1))
    assert [(delay.node, delay.why) for delay in delays(world.state, world.now)] == [
        (name, f"has made no step yet in the new configuration (plan {plan.id})") for name in ("w1", "w2")
    ]
    world.post(ev.Reported(world.now, "w1", plan.clock, finished=True))
    assert world.plan is not None
    world.post(ev.Reported(world.now, "w2", plan.clock + 1))
    assert world.plan is None


def test_unanswered_directives_are_sent_again_by_the_tick_and_on_reconnect():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2)
    world.until(Phase.ASSIGNED)
    node = world.node("w0")
    node.inbox.clear()
    count = len(world.sent(ef.Prepare, "w0"))
    for _ in range(6):
        world.tick()
    assert len(world.sent(ef.Prepare, "w0")) > count
    count = len(world.sent(ef.Prepare, "w0"))
    world.listen(node)
    assert len(world.sent(ef.Prepare, "w0")) == count + 1
    world.settle()


def test_pause_mode_resumes_workers_when_every_block_has_arrived():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2, migration=MigrationMode.PAUSE)
    plan = world.until(Phase.ARMED)
    assert plan.migration is MigrationMode.PAUSE
    for name in ("w0", "w1", "s0", "s1"):
        world.post(na.Switched(world.now, name, plan.number, plan.clock))
    assert not world.sent(ef.Resume)
    world.post(na.Arrived(world.now, "s1", plan.number))
    assert len(world.sent(ef.Resume, "w0")) == len(world.sent(ef.Resume, "w1")) == 1
    assert not world.sent(ef.Resume, "s0")
    world.post(na.Switched(world.now, "w0", plan.number, plan.clock, 12.5))
    for name in ("w0", "w1"):
        world.post(ev.Reported(world.now, name, plan.clock + 1))
    assert world.plan is None
    world.post(na.Switched(world.now, "w1", plan.number, plan.clock + 1, 13.5))
    assert world.records[-1].suspension == {"w0": 12.5, "w1": 13.5}, "a figure that comes late is not lost"


def test_a_server_that_falls_back_to_pause_is_in_the_record():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2)
    world.until(Phase.SYNCING)
    world.post(na.Synced(world.now, "s1", world.plan.number, 0, "pause"))
    world.settle()
    assert world.records[-1].fell_back == ("s1",)
