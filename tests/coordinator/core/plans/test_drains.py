"""An operator drains a node: who leaves by count already, who joins, and who is the last."""

import pytest

from coordinator.core import events as ev
from coordinator.core.plans.plan import Phase
from elastic_ps.core.configuration import Role
from tests.coordinator.played_job import World


@pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.ARMED])
def test_who_leaves_by_count_is_drained_by_the_same_plan(phase):
    """A script that powers the machine off when `drain` has ended would else take its blocks with it."""
    world = World(1, 2)
    world.ask(ev.ScaleAsked, 0, 1)
    plan = world.until(phase)
    (leaver,) = plan.leavers
    reply = world.ask(ev.DrainAsked, leaver)
    assert (reply.plan, reply.queued) == (plan.id, False)
    assert reply.request in world.plan.requests
    assert reply.request in [request.number for request in world.state.job.goal.wishes]
    assert world.ask(ev.DrainAsked, leaver).request == reply.request
    world.settle()
    assert world.counts == (1, 1)
    assert leaver not in world.state.job.members
    assert not world.state.job.goal.drains
    assert reply.request in world.records[-1].requests


def test_who_leaves_by_count_goes_also_where_another_dies():
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 2, 0)
    world.until(Phase.ASSIGNED)
    assert world.ask(ev.DrainAsked, "w2").request
    world.kill(world.node("w0"))
    world.settle()
    assert "w2" not in world.state.job.members
    assert world.counts == (2, 1)


def test_who_will_leave_by_count_is_drained_before_the_plan_is_assigned():
    world = World(3, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 2, 2)
    world.until(Phase.REGISTERED)
    reply = world.ask(ev.DrainAsked, "w2")
    assert (reply.plan, reply.queued) == (world.plan.id, False)
    world.replace_dead = True
    world.settle()
    assert world.counts == (2, 2), "two were asked for, without w2"
    assert "w2" not in world.state.job.members


def test_who_has_left_and_whose_plan_is_not_over_is_waited_for():
    world = World(1, 2)
    world.ask(ev.ScaleAsked, 0, 1)
    (leaver,) = world.until(Phase.ARMED).leavers
    while leaver in world.state.job.members:
        for node in world.alive:
            for queue, act in ((node.inbox, world.hear), (node.outbox, world.speak)):
                while queue:
                    act(node)
            world.train(node)
        world.tick()
    assert world.plan is not None
    reply = world.ask(ev.DrainAsked, leaver)
    assert reply.plan == world.plan.id
    world.settle()
    assert not world.state.job.goal.drains
    assert reply.request in world.records[-1].requests


def test_a_joiner_is_let_go_and_its_operator_told():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 3)
    world.replace_dead = False
    joiner = world.spawn(Role.SERVER)
    assert world.plan.phase is Phase.REGISTERED, "another server is waited for"
    reply = world.ask(ev.DrainAsked, joiner.id)
    assert (reply.plan, reply.queued, reply.request, reply.leaving) == (0, False, 0, (joiner.id,))
    world.replace_dead = True
    world.settle()
    assert joiner.id not in world.state.job.nodes
    assert world.counts == (1, 2)
