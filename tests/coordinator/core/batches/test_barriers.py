"""Barriers: who waits for whom, and what lets them go."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import protocol, replies
from coordinator.core.plans.plan import Phase
from tests.coordinator.played_job import ASYNC, STATIC, World, text


def passed(reply) -> bool:
    return isinstance(reply, replies.BarrierReply)


class Script:
    """A worker's script that comes to barriers."""

    def __init__(self, world, name):
        self.world, self.name, self.call = world, name, 0

    def enter(self, place=0, number=0, sharing=(), version=0):
        self.world.ask(ev.BarrierAsked, self.name, (place, number), sharing, version)
        self.call = self.world.asked
        return self

    @property
    def reply(self):
        return self.world.replies.get(self.call)


def scripts(world, *names):
    return [Script(world, name) for name in names]


def test_a_barrier_is_passed_when_all_workers_are_in_it():
    world = World(3, 1, data=STATIC)
    w0, w1, w2 = scripts(world, "w0", "w1", "w2")
    w0.enter()
    w2.enter()
    assert w0.reply is None
    w1.enter()
    assert all(passed(script.reply) for script in (w0, w1, w2))
    w1.enter(number=1)
    assert w1.reply is None, "the next one"


def test_a_lost_answer_is_given_again_also_by_a_coordinator_that_was_started_again():
    world = World(2, 1, data=STATIC)
    w0, w1 = scripts(world, "w0", "w1")
    w0.enter()
    w0.enter()  # a retry while it waits
    w1.enter()
    assert passed(w0.reply)
    world.kill_coordinator()
    assert passed(w1.enter().reply)
    assert w0.enter(number=1).reply is None


def test_a_coordinator_that_was_started_again_waits_for_all_again():
    world = World(2, 1, data=STATIC)
    w0, w1 = scripts(world, "w0", "w1")
    w0.enter()
    world.kill_coordinator()
    assert w1.enter().reply is None
    assert passed(w0.enter().reply)


@pytest.mark.parametrize(
    ("data", "how"),
    [(STATIC, "death"), (STATIC, "finish"), (ASYNC, "death"), (ASYNC, "finish"), (ASYNC, "drain")],
    ids=str,
)
def test_a_worker_that_goes_is_not_waited_for(data, how):
    world = World(2, 1, data=data, drawing=False)
    world.replace_dead = False
    (w0,) = scripts(world, "w0")
    w0.enter()
    if how == "death":
        world.kill(world.node("w1"))
        world.launcher()
    elif how == "finish":
        world.report(world.node("w1"), finished=True)
    else:
        world.ask(ev.DrainAsked, "w1")
        assert w0.reply is None
        for _ in range(5):
            world.turn()
    assert passed(w0.reply)


def test_who_is_drained_in_a_barrier_is_let_go():
    world = World(2, 1, data=ASYNC, drawing=False)
    (w1,) = scripts(world, "w1")
    w1.enter()
    world.ask(ev.DrainAsked, "w1")
    for _ in range(5):
        world.turn()
    assert w1.reply.why is ef.Why.ENDING


def test_a_worker_that_joins_shares_the_barriers_of_the_steps_that_it_makes():
    world = World(2, 1)
    w0, w1, w2 = scripts(world, "w0", "w1", "w2")
    world.ask(ev.ScaleAsked, 3, 0)
    world.settle()
    for script in (w0, w1):
        script.enter(place=7, sharing=("w0", "w1"))
    assert passed(w0.reply)
    for script in (w0, w1):
        script.enter(place=8, sharing=("w0", "w1", "w2"))
    assert w0.reply is None
    w2.enter(place=8, sharing=("w0", "w1", "w2"))
    assert passed(w0.reply)
    assert passed(w2.enter(place=7).reply), "of a step that is made again: it has been passed"


def test_a_joiner_whose_plan_is_armed_is_waited_for():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.until(Phase.ARMED)
    w0, w1, w2 = scripts(world, "w0", "w1", "w2")
    for script in (w0, w1):
        script.enter(place=1, sharing=("w0", "w1", "w2"))
    assert w0.reply is None
    w2.enter(place=1, sharing=("w0", "w1", "w2"))
    assert passed(w0.reply)


@pytest.mark.parametrize("told", [True, False], ids=["told", "later barrier"])
def test_a_joiner_that_begins_behind_a_step_which_another_makes_again_is_not_waited_for(told):
    """Found by the simulated world with barriers in its scripts: w0 heard of the switch before the last values.

    It need not wait for an exchange by then: its script may define a key, and wait for the chief's values (830234).
    """
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.until(Phase.ARMED)
    for node in world.alive:
        node.switch()
        while node.outbox:
            world.speak(node)
    assert world.plan is not None, "it waits for a step of each worker"
    w0, w1, w2 = scripts(world, "w0", "w1", "w2")
    version = world.state.version + 1
    w0.enter(place=9, sharing=("w0", "w1", "w2"), version=version)
    w1.enter(place=9, sharing=("w0", "w1"), version=version)
    world.post(ev.Reported(world.now, "w2", version - 1, exchanging=True, place=9))
    assert w0.reply is None, "it makes this step, too"
    if told:
        world.post(ev.Reported(world.now, "w2", version, place=11))
        world.post(ev.Reported(world.now, "w2", version - 1, place=9))  # late
    else:
        w2.enter(place=11, sharing=("w0", "w1", "w2"), version=version)
    assert passed(w0.reply)
    assert passed(w1.reply)


def test_who_joins_behind_an_epoch_is_not_waited_for_at_its_end():
    """Found by the simulated world (seed 801020): w1 came when the last batch was done, and draws of the next epoch."""
    world = World(2, 1, data=ASYNC, drawing=False)
    for number in range(1, ASYNC.steps_per_epoch + 2):
        world.draw("w0", number, 0)
    assert world.state.book.epoch == 1
    w0, w1 = scripts(world, "w0", "w1")
    w0.enter(place=1)
    assert w0.reply is None, "the other may have been in that epoch, too"
    assert isinstance(world.draw("w1", 1, 1), replies.DrawReply)
    assert passed(w0.reply)
    w0.enter(place=2)
    assert w0.reply is None
    w1.enter(place=2)
    assert passed(w0.reply)


def test_a_joiner_whose_plan_a_death_came_into_is_waited_for():
    """The plan that is under way then is assigned, and builds on the armed one, which may be in force at the joiner."""
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.until(Phase.ARMED)
    world.replace_dead = False
    world.node("w2").switch()
    world.kill(world.node("w1"))
    world.launcher()
    assert world.plan.phase is Phase.ASSIGNED
    w0, w2 = scripts(world, "w0", "w2")
    w2.enter(place=1, sharing=("w0", "w1", "w2"))
    assert w2.reply is None
    w0.enter(place=1, sharing=("w0", "w1", "w2"))
    assert passed(w0.reply)
    assert passed(w2.reply)
    w0.enter(place=2, sharing=("w0", "w1", "w2"))
    assert w0.reply is None, "the joiner shares it"


def test_the_jobs_end_ends_barriers():
    world = World(2, 1, data=STATIC)
    (w0,) = scripts(world, "w0")
    w0.enter()
    world.ask(ev.StopAsked)
    assert w0.reply.why is ef.Why.ENDING
    assert w0.enter().reply.why is ef.Why.ENDING


def test_servers_have_no_barriers():
    world = World(1, 1)
    assert Script(world, "s0").enter().reply.why is ef.Why.INVALID


def test_a_worker_in_a_barrier_whose_push_another_waits_for_is_told_so():
    world = World(2, 1, data=STATIC)
    (w1,) = scripts(world, "w1")
    w1.enter(version=14)
    world.post(ev.Reported(world.now, "w0", 13, exchanging=True))
    assert w1.reply is None, "w0 waits for the servers alone"
    world.post(ev.Reported(world.now, "w0", 14))
    assert w1.reply is None, "w0 computes"
    world.post(ev.Reported(world.now, "w0", 14, exchanging=True))
    assert w1.reply.why is ef.Why.PRECONDITION
    assert "w0 has pushed after version 14" in text(w1.reply)


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.SYNCING, Phase.ARMED], ids=str)
def test_so_is_one_while_a_plan_is_not_armed(phase):
    """Nobody made a step, so that the plan waited for them until it was given up."""
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.until(phase)
    (w1,) = scripts(world, "w1")
    w1.enter(version=14)
    world.post(ev.Reported(world.now, "w0", 14))
    world.post(ev.Reported(world.now, "w0", 14, exchanging=True))
    if phase is Phase.ARMED:
        assert w1.reply is None, "a step may be made again"
    else:
        assert w1.reply.why is ef.Why.PRECONDITION


@pytest.mark.parametrize("comes_first", [False, True])
def test_an_old_report_says_nothing_of_whom_a_worker_waits_for_now(comes_first):
    """It was written while the coordinator was away; the worker has told a newer version by now, or does so soon."""
    world = World(2, 1, data=STATIC)
    (w1,) = scripts(world, "w1")
    w1.enter(version=14)
    told = [ev.Listening(world.now, "w0", version=14), ev.Reported(world.now, "w0", 13, exchanging=True)]
    for event in reversed(told) if comes_first else told:
        world.post(event)
    assert w1.reply is None


def test_any_number_of_barriers_are_refused_at_once(monkeypatch):
    """One of them in each round of the rules, with 200 rounds, was taken for a bug of the coordinator."""
    world = World(8, 1, data=STATIC)
    waiting = scripts(world, *(f"w{number}" for number in range(1, 8)))
    for script in waiting:
        script.enter(version=14)
    monkeypatch.setattr(protocol, "_ROUNDS", 5)
    world.post(ev.Reported(world.now, "w0", 14))
    world.post(ev.Reported(world.now, "w0", 14, exchanging=True))
    assert all(script.reply.why is ef.Why.PRECONDITION for script in waiting)
    assert not world.state.barriers
