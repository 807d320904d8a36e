"""A node is evicted at once where the job survives that."""

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from tests.coordinator.played_job import World, text


def test_an_evicted_worker_is_gone_at_once_and_replaced():
    world = World(3, 1)
    frozen = world.node("w1")
    reply = world.ask(ev.EvictAsked, "w1", "by an operator")
    assert reply.outcome == "w1 is expelled; the others go on without it"
    assert world.plan.dead == {"w1"}
    world.kill(frozen)
    world.settle()
    assert world.counts == (3, 1)


def test_an_eviction_that_would_fail_the_job_is_refused():
    world = World(2, 1)
    why = text(world.ask(ev.EvictAsked, "s0"))
    assert "no checkpoint to go back to" in why
    assert "elasticctl checkpoint job" in why
    assert "s0" in world.state.job.nodes


def test_an_evicted_server_of_a_job_with_a_checkpoint_sends_it_back():
    world = World(2, 1, checkpoint="file:///nowhere")
    world.ask(ev.CheckpointAsked)
    world.saved()
    reply = world.ask(ev.EvictAsked, "s0")
    assert reply.outcome == "s0 is expelled; the job goes back to its last checkpoint"
    assert world.state.job.phase is JobPhase.RESTORING


def test_evicted_server_of_a_protected_job_leaves_its_blocks_to_their_followers():
    world = World(2, 2, replicas=1)
    frozen = world.node("s0")
    reply = world.ask(ev.EvictAsked, "s0")
    assert reply.outcome == "s0 is expelled; the followers of its blocks own them, and the others go on without it"
    world.kill(frozen)
    world.settle()
    assert world.state.job.phase is JobPhase.RUNNING


def test_eviction_of_a_server_whose_blocks_nobody_follows_is_refused():
    world = World(2, 1, replicas=1)
    why = text(world.ask(ev.EvictAsked, "s0"))
    assert why.startswith("s0 is a server with blocks that nobody follows, and the job has no checkpoint")


def test_an_unknown_node_is_not_evicted():
    world = World(2, 1)
    reply = world.ask(ev.EvictAsked, "w9")
    assert (reply.why, "its nodes: s0, w0, w1" in reply.text) == (ef.Why.NOT_FOUND, True)
