"""Waits that end nobody: the status and the log name who is waited for, and since when."""

from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.plans.plan import MigrationMode, Phase
from coordinator.server.status_view import status
from tests.coordinator.played_job import ASYNC, DATA, OPTIMIZER, SSP, STATIC, TENSORS, World


def told(world, pushing=()):
    """What the status says after 20 s in which the nodes report, and nothing else happens; `pushing`: who waits in a
    step for the others' pushes."""
    for _ in range(40):
        for node in world.alive:
            report = ev.Reported(world.now, node.id, node.version, 0.1, 0.01, exchanging=node.id in pushing)
            world.post(report)
        world.tick()
    return list(status(world.state, world.now).waiting)


def test_a_barrier_names_who_has_not_come_to_it():
    world = World(4, 1, data=STATIC)
    world.ask(ev.BarrierAsked, "w2", (0, 0), (), 0)
    for _ in range(4):
        world.tick()
    world.ask(ev.BarrierAsked, "w0", (0, 0), (), 0)
    world.ask(ev.BarrierAsked, "w2", (0, 0), (), 0)  # a retry
    assert told(world) == [
        "w1 has kept w0, w2 waiting (in a barrier) for 22 s",
        "w3 has kept w0, w2 waiting (in a barrier) for 22 s",
    ]
    world.ask(ev.BarrierAsked, "w1", (0, 0), (), 0)
    assert told(world) == ["w3 has kept w0, w1, w2 waiting (in a barrier) for 42 s"]
    assert any("w3 has kept w0, w1, w2 waiting" in line for line in world.logs)
    world.ask(ev.BarrierAsked, "w3", (0, 0), (), 0)
    assert told(world) == []


def test_a_script_that_waits_for_servers_names_those_that_have_not_answered():
    """They run what users have written: a rule of an optimizer, a handler of a command."""
    world = World(2, 2, declare=False)
    world.settle()
    world.declare(world.node("w1"), TENSORS, DATA, optimizer=OPTIMIZER)
    world.post(na.Tried(world.now, "s0", OPTIMIZER))
    assert told(world) == ["s1 has kept w1 waiting (an optimizer) for 20 s"]
    world.settle()
    world.ask(ev.CommandAsked, "w0", 4, 3, "body")
    world.post(na.Commanded(world.now, "s1", 4))
    assert told(world) == ["s0 has not run a script's command for 20 s"]
    world.post(na.Commanded(world.now, "s0", 4))
    assert told(world) == []


def test_a_draw_at_an_epochs_end_names_who_holds_its_last_batches():
    world = World(3, 1, data=ASYNC, drawing=False)
    world.draw("w1", 1)
    for number in range(1, 7):
        assert world.draw("w0", number) is not None
    assert world.draw("w0", 7) is None
    assert told(world) == ["w1 has kept w0 waiting (its batch is one of the epoch's last) for 20 s"]
    world.draw("w1", 2)
    assert told(world) == []


def test_a_draw_under_ssp_names_the_slowest():
    world = World(3, 1, data=SSP, drawing=False)
    for worker, number in (("w0", 1), ("w0", 2), ("w1", 1), ("w2", 1), ("w2", 2)):
        assert world.draw(worker, number) is not None
    assert world.draw("w2", 3) is None, "two steps ahead of w1, one of w0"
    assert told(world) == ["w1 has kept w2 waiting (it is the slowest, staleness 2) for 20 s"]
    world.draw("w1", 2)
    assert told(world) == []


def armed(world, workers, servers, **named):
    world.ask(ev.ScaleAsked, workers, servers, **named)
    return world.until(Phase.ARMED)


def acts(world, *names):
    """These do all that they are told."""
    for name in names:
        node = world.node(name)
        while node.inbox or node.outbox:
            while node.inbox:
                world.hear(node)
            while node.outbox:
                world.speak(node)


def test_an_armed_plan_names_the_worker_whose_script_does_not_come_to_its_clock():
    world = World(3, 1)
    plan = armed(world, 3, 2)
    acts(world, "w0", "w1", "w2", "s0", "s1")
    assert world.plan.phase is Phase.ARMED
    assert told(world, pushing=("w0", "w2")) == [f"w1 has not come to version {plan.clock} (plan {plan.id}) for 20 s"]
    assert len(told(world, pushing=("w0", "w1", "w2"))) == 3, "as far as reports tell"


def test_a_decided_plan_names_who_has_not_switched():
    world = World(3, 1, data=ASYNC)
    plan = armed(world, 3, 2)
    acts(world, "w0", "w2", "s0", "s1")
    assert plan.decided
    assert told(world) == [f"w1 has not answered SWITCHED of plan {plan.id} for 20 s: w1 is expelled in 580 s"]


def test_a_plan_that_has_switched_names_the_new_owner_that_lacks_blocks():
    world = World(2, 1)
    plan = armed(world, 2, 2, migration=MigrationMode.PAUSE)
    world.node("s1").arrive = lambda: None
    for _ in range(30):
        acts(world, *(node.id for node in world.alive))
        for node in world.alive:
            world.train(node)
    assert world.plan is not None
    assert told(world) == [f"s1 does not hold its new blocks yet (plan {plan.id}) for 20 s"]


def test_a_plan_that_has_switched_names_workers_without_a_step():
    world = World(2, 1)
    plan = armed(world, 2, 2)
    for _ in range(30):
        for _ in range(3):  # what one says makes the coordinator tell the others
            acts(world, *(node.id for node in world.alive))
        if world.state.job.configuration == plan.target:
            break
        for node in world.alive:
            world.train(node)
    assert told(world)[0] == f"w0 has made no step yet in the new configuration (plan {plan.id}) for 20 s"
    world.settle()
    assert told(world) == []


def test_a_coordinator_that_was_started_again_names_who_keeps_an_armed_plan_waiting():
    world = World(3, 1)
    plan = armed(world, 3, 2)
    world.kill_coordinator()
    world.tick(4)
    assert f"w1 has not said whether it has switched (plan {plan.id}) for 4 s" in status(world.state, world.now).waiting
    world.node("w0").switch()
    for name in ("w0", "w1", "w2", "s0", "s1"):
        world.listen(world.node(name))
    acts(world, "w0", "w2", "s0", "s1")
    assert world.plan.decided
    assert any(line.startswith("w1 has not answered SWITCHED of plan") for line in told(world))
    for _ in range(3):
        acts(world, *(node.id for node in world.alive))
    assert world.state.job.configuration == plan.target
    assert told(world)[0] == f"w0 has made no step yet in the new configuration (plan {plan.id}) for 20 s"


def test_a_coordinator_that_was_started_again_names_who_has_not_confirmed_what_is_declared():
    world = World(2, 1)
    world.kill_coordinator()
    for node in world.alive:
        world.listen(node)
    acts(world, "w0", "s0")
    assert told(world) == ["w1 has not confirmed what was declared last for 20 s"]
    world.listen(world.node("w1"))
    assert status(world.state, world.now).waiting == [], "it is asked anew"
