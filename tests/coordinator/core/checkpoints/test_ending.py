"""How a job ends."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.checkpoints.saving import SAVE_SECONDS
from coordinator.core.job import StopOrder
from coordinator.core.nodes.deaths import GRACE_SECONDS
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.server.status_view import status
from elastic_ps.core.configuration import Role
from tests.coordinator.played_job import ASYNC, DATA, STATIC, World, text


def test_the_job_ends_when_every_worker_has_finished():
    world = World(2, 1)
    world.report(world.node("w0"), finished=True)
    assert not world.state.job.ended
    world.post(ev.Exited(world.now, "", "w1", 0))
    assert world.state.job.phase == "finished"
    assert world.sent(type(world.state.job.nodes["s0"].stop), "s0")
    assert world.wanted.ended
    assert not world.wanted.failed


def test_a_finishing_job_takes_no_plan():
    world = World(2, 1)
    world.report(world.node("w0"), finished=True)
    assert "finishing" in text(world.ask(ev.ScaleAsked, 3, 0))
    assert world.wanted.starting_workers == 0


def test_a_worker_that_crashes_after_the_last_step_fails_the_job_by_name():
    world = World(2, 1)
    world.report(world.node("w0"), finished=True)
    world.kill(world.node("w1"), 1)
    world.launcher()
    assert world.state.job.phase == "failed"
    assert "w1: exit status 1" in world.state.job.reason


def test_a_worker_that_had_finished_and_exits_with_a_status_has_died():
    world = World(2, 1)
    world.report(world.node("w1"), finished=True)
    world.kill(world.node("w1"), 3)
    world.launcher()
    assert world.plan.dead == {"w1"}
    world.settle()
    assert world.counts == (2, 1), "it is replaced"
    assert not world.state.job.finished


@pytest.mark.parametrize("exit_status", [3, 255])
def test_a_job_whose_last_worker_exits_with_a_status_has_failed(exit_status):
    world = World(2, 1)
    for node in ("w0", "w1"):
        world.report(world.node(node), finished=True)
    assert world.state.job.phase == "finished"
    world.kill(world.node("w1"), exit_status)
    world.launcher()
    assert world.state.job.phase == "failed"
    assert f"w1 ended with exit status {exit_status}" in world.state.job.reason
    assert world.wanted.failed


def ended(world, name):
    """A worker's script ends in order, and its process with it."""
    node = world.node(name)
    world.report(node, finished=True)
    world.kill(node, 0)
    world.launcher()


@pytest.mark.parametrize("tells", [True, False], ids=["told", "seen"])
@pytest.mark.parametrize("dies", [False, True], ids=["armed", "death"])
def test_a_worker_whose_plan_is_not_in_force_yet_ends_in_order(tells, dies):
    """It has switched and trained to the end before all others had said that they have switched, too."""
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 4, 0)
    world.until(Phase.ARMED)
    world.replace_dead = False
    world.node("w3").switch()
    if dies:
        world.kill(world.node("w2"))
        world.launcher()
        assert world.plan.phase is Phase.ASSIGNED
    world.report(world.node("w0"), finished=True)
    if tells:
        world.report(world.node("w3"), finished=True)
    world.kill(world.node("w3"), 0)
    world.launcher()
    for name in ("w1",) if dies else ("w1", "w2"):
        world.report(world.node(name), finished=True)
    world.settle()
    assert world.state.job.phase == "finished"


@pytest.mark.parametrize("data", [DATA, ASYNC, STATIC], ids=["sync", "async", "static"])
def test_a_worker_whose_script_ends_while_others_train_leaves_them_alone(data):
    world = World(3, 1, data=data)
    ended(world, "w1")
    world.tick(GRACE_SECONDS - 0.5)
    assert world.plan is None, "the others may have ended as well"
    world.tick(1)
    assert (world.plan.kind, world.plan.cause) == (PlanKind.DEATH, "w1 has finished")
    world.settle()
    assert world.counts == (2, 1), "nobody takes its place"
    before = world.node("w0").version
    for _ in range(3):
        world.turn()
    assert world.node("w0").version > before, "the others go on"
    assert not world.state.job.reason
    assert not status(world.state, world.now).reason
    for name in ("w0", "w2"):
        ended(world, name)
    assert world.state.job.phase == "finished"


@pytest.mark.parametrize("planned", [False, True], ids=["before", "within"])
@pytest.mark.parametrize("data", [DATA, ASYNC], ids=["sync", "async"])
def test_a_worker_that_dies_while_another_is_taken_to_end_with_all_is_replaced_as_others_train(data, planned):
    """The job failed for it at its very end, and it was not replaced. `planned`: while the plan is under way."""
    world = World(4, 1, data=data)
    ended(world, "w0")
    if planned:
        world.tick(GRACE_SECONDS + 0.5)
        assert world.plan.kind is PlanKind.DEATH
    world.kill(world.node("w1"))
    world.launcher()
    assert world.state.job.crashed
    for _ in range(20):
        world.turn()
    world.settle()
    assert world.counts == (3, 1), "two, and one in the place of who died"
    deaths = {plan.cause for plan in world.records if plan.kind is PlanKind.DEATH}
    assert deaths == ({"w0 has finished", "death of w1"} if planned else {"death of w1; w0 has finished"})
    for name in world.state.job.configuration.ranks:
        ended(world, name)
    assert world.state.job.phase == "finished"


@pytest.mark.parametrize("data", [DATA, ASYNC], ids=["sync", "async"])
def test_who_dies_as_it_leaves_while_others_end_fails_no_job(data):
    world = World(3, 1, data=data)
    world.ask(ev.ScaleAsked, 2, 0)
    world.until(Phase.ARMED)
    ended(world, "w0")
    world.kill(world.node("w2"))
    world.launcher()
    world.settle()
    for _ in range(20):
        world.turn()
    ended(world, "w1")
    assert world.state.job.phase == "finished"


@pytest.mark.parametrize("data", [DATA, ASYNC], ids=["sync", "async"])
def test_a_job_has_finished_though_a_server_does_not_say_that_a_worker_may_have_left(data):
    world = World(2, 2, data=data)
    world.ask(ev.ScaleAsked, 1, 0)
    world.until(Phase.ARMED)
    for name in ("w0", "w1"):
        world.node(name).switch()
        world.speak(world.node(name))
    world.kill(world.node("w1"), 0)
    world.launcher()
    assert not world.state.job.ended, "the other one trains on"
    ended(world, "w0")
    assert world.state.job.phase == "finished"
    assert not world.state.job.voids


def test_a_job_has_not_finished_where_who_comes_by_an_armed_plan_trains_on():
    world = World(1, 1, data=ASYNC)
    world.ask(ev.DrainAsked, "w0")
    plan = world.until(Phase.ARMED)
    assert [worker.id for worker in plan.target.workers] == ["w1"]
    world.node("w0").switch()
    world.speak(world.node("w0"))
    world.kill(world.node("w0"), 0)
    world.launcher()
    assert not world.state.job.ended


def test_the_batch_of_a_worker_whose_script_ends_early_goes_to_another():
    world = World(2, 1, data=ASYNC)
    world.turn()
    ended(world, "w1")
    world.check_batches(2)


def test_a_job_whose_worker_ended_early_scales_again():
    world = World(2, 1)
    ended(world, "w1")
    world.tick(GRACE_SECONDS + 1)
    world.settle()
    world.ask(ev.ScaleAsked, 3, 0)
    world.settle()
    assert world.counts == (3, 1)


@pytest.mark.parametrize(
    ("kind", "asked", "who", "left"),
    [
        (ev.ScaleAsked, (2, 0), "w2", 2),
        (ev.ScaleAsked, (2, 0), "w0", 2),
        (ev.DrainAsked, ("w2",), "w2", 2),
        (ev.DrainAsked, ("w2",), "w0", 1),
    ],
    ids=["the leaver", "another of as many", "who is drained", "another than who is drained"],
)
def test_a_script_that_ends_where_one_is_to_go_counts_as_that_one(kind, asked, who, left):
    world = World(3, 1)
    world.ask(kind, *asked)
    world.until(Phase.ASSIGNED)
    ended(world, who)
    assert world.records[-1].phase is Phase.CANCELLED
    for _ in range(2):
        world.tick(GRACE_SECONDS / 2 + 0.5)
    world.settle()
    assert world.counts == (left, 1)
    assert who not in world.state.job.members
    assert world.state.job.goal.workers == left


def test_who_comes_in_the_place_of_a_worker_whose_script_ended_early_is_told_to_end():
    """Nobody takes that place: it would wait to join for as long as the others train."""
    world = World(2, 1)
    ended(world, "w1")
    world.spawn(Role.WORKER)
    world.tick(GRACE_SECONDS + 1)
    world.settle()
    assert world.counts == (1, 1)
    assert "not wanted any more" in world.sent(StopOrder, "w2")[0].reason


def test_a_plan_that_waits_for_a_finished_workers_step_lands_without_it():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    armed = world.until(Phase.ARMED)
    ended(world, "w1")
    world.tick(GRACE_SECONDS + 1)
    assert world.plan.absorbed[0].id == armed.id
    world.settle()
    assert world.counts == (1, 2)


def test_stop_ends_the_job_and_refuses_newcomers():
    world = World(1, 1)
    world.ask(ev.StopAsked)
    assert world.wanted.ended
    assert world.wanted.reason == "stopped by the operator"
    refused = world.ask(ev.Joined, Role.WORKER, "h", 0, 1, "new")
    assert (text(refused), refused.why) == ("the job has ended: stopped by the operator", ef.Why.ENDING)


@pytest.mark.parametrize(
    ("event", "arguments", "why", "says"),
    [
        (ev.CommandAsked, ("w0", 1, 0, "body"), ef.Why.ENDING, "at noon"),
        (ev.DrawAsked, ("w0", 1, 0), ef.Why.ENDING, "at noon"),
        (ev.BarrierAsked, ("w0", (0, 0), (), 1), ef.Why.ENDING, "at noon"),
        (ev.Declared, ("w0", ()), ef.Why.ENDING, "at noon"),
        (ev.CheckpointAsked, ("/c",), ef.Why.PRECONDITION, "nothing to save any more: the job has ended (at noon)"),
    ],
)
def test_scripts_whose_job_has_just_ended_wait_for_no_answer(event, arguments, why, says):
    world = World(1, 1)
    world.ask(ev.StopAsked, True, "at noon")
    refused = world.ask(event, *arguments)
    assert says in text(refused)
    assert refused.why is why


def test_a_stop_that_waits_for_a_checkpoint_is_not_forgotten_by_a_coordinator_that_is_started_again():
    world = World(1, 1, checkpoint="/c")
    world.ask(ev.CheckpointAsked)
    assert not isinstance(world.ask(ev.StopAsked, False, "stopped at noon"), ef.Refuse)
    assert not world.state.job.ended
    world.kill_coordinator()
    assert world.state.job.stopping == "stopped at noon"
    written = world.saved()
    assert written.url.startswith("/c/"), "nor is the checkpoint"
    assert (world.state.job.phase, world.wanted.reason) == ("finished", "stopped at noon")
    assert not world.state.job.stopping, "it may begin again"
    assert not world.state.job.stops_behind


def test_a_checkpoint_that_a_stop_waits_for_is_waited_for_as_long_by_a_coordinator_that_is_started_again():
    world = World(1, 1, checkpoint="/c")
    world.ask(ev.CheckpointAsked)
    world.ask(ev.StopAsked, False, "stopped at noon")
    world.kill_coordinator()
    for _ in range(int(SAVE_SECONDS / 4)):
        assert not world.state.job.ended
        for node in world.alive:
            world.report(node)
        world.tick(4)
    assert world.state.job.phase == "finished"


def test_a_stop_waits_for_a_bounded_time_for_a_checkpoint_that_cannot_be_begun():
    """A script hangs before the clock of an armed plan, which nobody is blamed for."""
    world = World(1, 1, checkpoint="/c")
    world.ask(ev.ScaleAsked, 2, 1)
    world.until(Phase.ARMED)
    world.ask(ev.CheckpointAsked)
    asked = world.asked
    world.ask(ev.StopAsked)
    for _ in range(int(SAVE_SECONDS / 4)):
        assert not world.state.job.ended
        for node in world.alive:
            while node.inbox:
                world.hear(node)
            while node.outbox:
                world.speak(node)
            world.report(node)
        world.tick(4)
    assert "a checkpoint to /c is given up: it could not be begun within 1800 s" in world.replies[asked].text
    assert world.state.job.phase == "finished"


@pytest.mark.parametrize("first", ["stop", "death"])
def test_a_stop_does_not_wait_for_a_storage_to_say_what_to_go_back_to(first):
    world = World(1, 1, checkpoint="/c")
    world.ask(ev.CheckpointAsked)
    acts = [lambda: world.ask(ev.StopAsked), lambda: world.post(ev.Exited(world.now, "", "s0", 137))]
    for act in acts if first == "stop" else reversed(acts):
        act()
    assert (world.state.job.phase, world.wanted.reason) == ("finished", "stopped by the operator")


def test_a_checkpoint_that_the_jobs_end_overtakes_says_so():
    world = World(1, 1, checkpoint="/c")
    world.ask(ev.CheckpointAsked)
    asked = world.asked
    world.report(world.node("w0"), finished=True)
    refused = world.replies[asked]
    assert (refused.text, refused.why) == ("the checkpoint came to nothing: the job has finished", ef.Why.ENDING)


def test_a_launcher_that_gives_up_fails_the_job_with_its_reason():
    world = World(1, 1)
    world.ask(ev.StopAsked, True, "w0 was killed by SIGKILL", True)
    assert (world.state.job.phase, world.wanted.reason) == ("failed", "w0 was killed by SIGKILL")


@pytest.mark.parametrize("data", [DATA, ASYNC, STATIC])
def test_the_version_does_not_fall_when_workers_finish_and_go(data):
    world = World(2, 1, data=data, drawing=False)
    server = world.node("s0")
    told = [world.state.version]
    for name, version in (("w0", 40), ("w1", 42)):
        node = world.node(name)
        node.version = version
        world.report(node, finished=True)
        told.append(world.state.version)
        world.kill(node, 0)
        world.launcher()
        told.append(world.state.version)
        server.version = version - 2  # it tells of what it has applied later
        world.report(server)
        told.append(world.state.version)
    world.tick()
    assert told == sorted(told)
    assert told[-1] == world.state.version == 42


@pytest.mark.parametrize("writing", [False, True], ids=["holders save", "the manifest is written"])
def test_of_a_checkpoint_that_the_end_cuts_off_nothing_stays(writing):
    """But where its manifest is under way it may become whole."""
    world = World(2, 1, checkpoint="/ck")
    world.turn()
    world.ask(ev.CheckpointAsked)
    while not world.state.saving.url or world.state.saving.writing is not writing:
        world.turn()
    pending = world.state.saving
    world.ask(ev.StopAsked, True)
    assert world.state.job.ended
    assert (ef.DiscardCheckpoint(pending.url) in world.effects) is not writing


def test_a_job_that_goes_back_removes_nothing_that_it_may_save_again():
    world = World(2, 2, checkpoint="/ck")
    world.turn()
    world.ask(ev.CheckpointAsked)
    world.saved()
    world.ask(ev.CheckpointAsked)
    assert world.state.saving.url
    world.kill(world.node("s1"))
    world.launcher()
    assert world.state.job.loading
    assert not [effect for effect in world.effects if isinstance(effect, ef.DiscardCheckpoint)]
