"""How a job ends."""

from played_job import World, text

from coordinator import events as ev
from elastic_ps.core.configuration import Role


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


def test_a_job_whose_last_worker_exits_with_a_status_has_failed():
    world = World(2, 1)
    for node in ("w0", "w1"):
        world.report(world.node(node), finished=True)
    assert world.state.job.phase == "finished"
    world.kill(world.node("w1"), 3)
    world.launcher()
    assert world.state.job.phase == "failed"
    assert "w1 ended with exit status 3" in world.state.job.reason
    assert world.wanted.failed


def test_stop_ends_the_job_and_refuses_newcomers():
    world = World(1, 1)
    world.ask(ev.StopAsked)
    assert world.wanted.ended
    assert "has ended" in text(world.ask(ev.Joined, Role.WORKER, "h", 0, 1, "new"))
