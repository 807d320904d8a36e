"""A server that leaves is lost while its plan is armed: what of its blocks has come to their new owners?"""

import pytest

from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.directives import landed
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import MigrationMode, Phase
from tests.coordinator.core.nodes.troubled_jobs import cut, passing, with_checkpoint
from tests.coordinator.played_job import ASYNC, DATA, SSP, World

LIVE, PAUSE = MigrationMode.LIVE, MigrationMode.PAUSE
KINDS = [(DATA, LIVE), (DATA, PAUSE), (ASYNC, LIVE), (ASYNC, PAUSE), (SSP, LIVE)]


def leaving(data, migration, workers=1):
    """All have switched, so s1 has sent its blocks. s0 has not said that they have come, and there is no step yet."""
    world = with_checkpoint(World(workers, 2, data=data, migration=migration, checkpoint="file:///nowhere"))
    world.ask(ev.DrainAsked, "s1")
    plan = world.until(Phase.ARMED)
    world.replace_dead = False
    world.node("s0").arrive = lambda: None
    switched(world, plan)
    return world


def switched(world, plan):
    for name in plan.audience:
        node = world.node(name)
        if node.number != plan.number:
            node.switch()
        while node.outbox:
            world.speak(node)
    assert world.state.job.configuration == plan.target
    assert world.plan.phase is Phase.ARMED


def killed(world):
    node = world.node("s1")
    world.kill(node)
    world.launcher()


def frozen(world):
    passing(world, 17, "s1")
    world.kill(world.node("s1"))


def separated(world):
    cut(world, "s0", "s1")
    passing(world, 14)
    world.kill(world.node("s1"))


@pytest.mark.parametrize("loss", [killed, frozen, separated])
@pytest.mark.parametrize(("data", "migration"), KINDS)
def test_with_blocks_that_have_not_come_the_job_goes_back_to_its_checkpoint(data, migration, loss):
    world = leaving(data, migration)
    loss(world)
    assert "s1" not in world.state.job.nodes
    assert world.state.job.phase is JobPhase.RESTORING
    assert "server s1 died" in world.state.job.reason


@pytest.mark.parametrize("loss", [killed, frozen, separated])
def test_whose_blocks_have_come_is_done_without(loss):
    world = leaving(DATA, LIVE)
    world.post(na.Arrived(world.now, "s0", world.plan.number))
    loss(world)
    assert "s1" not in world.state.job.nodes
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[-1].phase is Phase.COMMITTED


def test_a_coordinator_that_comes_back_hears_again_that_the_blocks_have_come():
    world = leaving(DATA, LIVE)
    world.post(na.Arrived(world.now, "s0", world.plan.number))
    world.kill_coordinator()
    del world.node("s0").arrive
    for node in world.alive:
        world.listen(node)
    passing(world, 1)
    assert world.plan.phase is Phase.ARMED
    killed(world)
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[-1].phase is Phase.COMMITTED


def test_a_coordinator_that_comes_back_waits_until_one_that_leaves_has_told_all_it_has():
    """That it is in the plan's configuration does not say so: its last ledger entries may be with it alone."""
    world = World(1, 2, data=DATA)
    world.ask(ev.DrainAsked, "s1")
    world.until(Phase.ARMED)
    leaver, told = world.node("s1"), []
    leaver.on_adopt = lambda adopt: told and leaver.answer(na.Switched, adopt.number, leaver.version)
    for node in world.alive:
        if node.prepared is not None:
            node.switch()
        node.outbox.clear()
    world.kill_coordinator()  # and nobody's answer has come
    passing(world, 3)
    assert not landed(world.state)
    told.append("its last entries")
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[-1].phase is Phase.COMMITTED


def test_a_death_meanwhile_does_not_make_its_blocks_come():
    """The death's plan moves nothing itself: the hand-overs are those of the plan that it came into."""
    world = leaving(DATA, LIVE, workers=2)
    scale = world.plan
    world.kill(world.node("w1"))
    world.launcher()
    death = world.until(Phase.ARMED)
    assert death.absorbed == (scale,)
    switched(world, death)
    killed(world)
    assert world.state.job.phase is JobPhase.RESTORING
