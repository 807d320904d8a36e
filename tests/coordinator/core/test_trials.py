"""Optimizers that the job does not have yet: every server tries one before the tables have it."""

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.job import JobPhase
from elastic_ps.core.optimizer import OptimizerSpec
from tests.coordinator.played_job import DATA, TENSORS, World

SGD = OptimizerSpec("sgd", {"momentum": 0.9}).to_json()


def started(workers=2, servers=2):
    world = World(workers, servers, declare=False)
    world.settle()
    return world


def test_servers_try_an_optimizer_before_the_tables_have_it():
    world = started()
    assert world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD) is None
    assert not world.state.job.model.tensors
    assert [type(directive) for directive in world.node("s0").inbox] == [ef.TryOptimizer]
    assert set(world.node("s0").inbox[0].dtypes) == {tensor.dtype for tensor in TENSORS if not tensor.auxiliary}
    world.settle()
    assert list(world.replies[world.asked].optimizers) == [SGD]
    assert not world.state.trials


def test_what_a_server_cannot_run_is_refused_before_anything_is_changed():
    world = started()
    world.refused_optimizers["s1"] = "optimizer 'rules:Mine': No module named 'rules'"
    before = world.state.job
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    world.settle()
    reply = world.replies[world.asked]
    assert isinstance(reply, ef.Refuse)
    assert reply.why is ef.Why.INVALID
    assert reply.text == "s1 refuses it: optimizer 'rules:Mine': No module named 'rules'"
    assert world.state.job is before
    assert not world.state.trials
    assert not world.state.declarations


def test_every_worker_that_declares_it_is_refused_and_another_optimizer_is_taken():
    world = started()
    world.refused_optimizers |= {"s0": "no", "s1": "no"}
    asked = []
    for name in ("w0", "w1"):
        world.declare(world.node(name), TENSORS, DATA, optimizer=SGD)
        asked.append(world.asked)
    world.settle()
    assert [world.replies[number].text for number in asked] == ["s0 and 1 more refuse it: no"] * 2
    world.refused_optimizers.clear()
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    world.settle()
    assert list(world.replies[world.asked].optimizers) == [SGD]


def test_who_declares_no_new_optimizer_does_not_wait_for_a_trial():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    waits = world.asked
    world.node("s1").inbox.clear()  # the trial is lost with this server's stream
    world.declare(world.node("w1"), TENSORS, DATA)
    for _ in range(5):
        world.turn()
    assert world.asked in world.replies
    assert waits not in world.replies
    world.post(na.Tried(world.now, "s1", SGD))
    world.settle()
    assert list(world.replies[waits].optimizers) == [SGD]


def test_a_trial_ends_with_the_script_that_asked():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    assert world.state.trials
    world.post(ev.Withdrawn(world.now, world.asked))
    assert not world.state.trials


def test_a_server_that_would_break_again_ends_the_job_with_its_reason():
    world = World(2, 2)
    world.post(na.Broken(world.now, "s1", "optimizer 'rules:Mine' fails in update: ValueError('x')"))
    assert world.state.job.phase is JobPhase.FAILED
    assert world.state.job.reason == "s1 cannot go on: optimizer 'rules:Mine' fails in update: ValueError('x')"


def test_a_server_that_joins_and_cannot_is_only_one_that_did_not_come():
    world = World(2, 2)
    world.ask(ev.ScaleAsked, 2, 3)
    world.turn()
    assert "s2" in world.state.job.nodes
    assert "s2" not in world.state.job.members
    world.post(na.Broken(world.now, "s2", "no module"))
    assert world.state.job.phase is JobPhase.RUNNING
