"""A server dies, and the coordinator with its journal: nodes say who was promoted, and what is under way."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase
from tests.coordinator.core.nodes.lost_journals import lost, wait_in_vain
from tests.coordinator.core.nodes.replicated_jobs import check_survived, protected, replicated
from tests.sweeps import sweep


def test_server_dies_with_the_journal():
    world = replicated()
    world.kill(world.node("s1"))
    world.exits.clear()  # told to the coordinator that is gone
    lost(world)
    world.settle()
    check_survived(world, term=2)
    assert world.counts == (2, 3)


def go_on(world, times):
    """So often a node hears one directive, or says one thing."""
    for _ in range(times):
        node = next((node for node in world.alive if node.inbox or node.outbox), None)
        if node is not None:
            (world.hear if node.inbox else world.speak)(node)


@pytest.mark.parametrize("answers", range(0, 40, 3))
def test_journal_is_lost_in_a_servers_death(answers):
    """Undecided it is decided anew; decided it is what somebody has adopted."""
    world = replicated()
    world.kill(world.node("s1"))
    world.launcher()
    go_on(world, answers)
    lost(world)
    world.settle()
    check_survived(world, term=2)


@pytest.mark.parametrize("phase", [Phase.SYNCING, Phase.ARMED])
@pytest.mark.parametrize("victim", ["s0", "s2", "s3"])
def test_server_dies_with_the_journal_in_a_plan(phase, victim):
    world = replicated()
    world.ask(ev.ScaleAsked, 3, 4)
    world.until(phase)
    world.kill(world.node(victim))
    world.exits.clear()
    lost(world)
    world.settle()
    check_survived(world, term=2)


def switched_with_hand_overs_under_way(leaver):
    """Everybody has switched to a configuration without a server, whose blocks have not arrived yet."""
    world = replicated(servers=3)
    world.ask(ev.DrainAsked, leaver)
    plan = world.until(Phase.ARMED)
    world.post(ev.Tick(world.now))
    for _ in range(40):
        for node in list(world.alive):
            while node.inbox:
                world.hear(node)
            while node.outbox:
                world.speak(node)
            world.train(node)
            world.report(node)
            world.notice(node)
        if all(node.number == plan.number for node in world.alive):
            break
        world.tick()
    assert world.node(leaver).under_way, world.describe()
    return world


@pytest.mark.parametrize("leaver", ["s0", "s1", "s2"])
def test_nothing_is_committed_before_what_is_under_way_has_arrived(leaver):
    world = switched_with_hand_overs_under_way(leaver)
    lost(world)
    for node in list(world.alive):
        world.listen(node)
    for _ in range(10):
        world.tick()
    assert world.state.job.phase is JobPhase.RUNNING
    assert leaver in world.plan.base.members, "what is under way begins there"
    assert not [d for d in world.sent(ef.Committed, leaver) if d.number == world.plan.number]
    world.settle()
    check_survived(world, term=2)


@pytest.mark.parametrize("leaver", ["s0", "s1", "s2"])
def test_giver_dies_with_what_is_under_way(leaver):
    """Who was to have its blocks, or their follower, has a copy that all will do with."""
    world = switched_with_hand_overs_under_way(leaver)
    lost(world)
    world.kill(world.node(leaver))
    world.settle()
    check_survived(world, term=2)


@pytest.mark.parametrize("absent", ["s0", "s1", "w0", "w1"])
@pytest.mark.parametrize("answers", sweep(range(0, 60, 6)))
def test_leaver_dies_and_somebody_else_does_not_come(answers, absent):
    """What a death left undecided is in force nowhere, though only one is missing to say so."""
    world = replicated(servers=3)
    world.ask(ev.DrainAsked, "s2")
    world.until(Phase.ARMED)
    world.kill(world.node("s2"))
    world.launcher()
    go_on(world, answers)
    lost(world)
    world.node(absent).frozen = True
    wait_in_vain(world)
    world.settle()
    assert world.state.job.ended or protected(world) or world.counts[1] == 1, world.describe()
    assert not world.state.job.ended or "no checkpoint" in world.state.job.reason
