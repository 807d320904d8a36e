"""Nodes that end, wait or come while a coordinator without a journal asks who is there."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.core.nodes.rebuilding import ALONE_SECONDS, PATIENCE_SECONDS, SETTLE_SECONDS
from coordinator.core.plans.plan import MigrationMode, Phase, PlanKind
from elastic_ps.core.configuration import Role
from tests.coordinator.core.nodes.lost_journals import lost
from tests.coordinator.played_job import World


@pytest.mark.parametrize("named", [True, False], ids=["its own launcher", "others' launchers"])
def test_a_job_whose_scripts_end_while_it_asks_has_finished(named):
    """A launcher of one node does not know its name: where nobody has seen who ended, others are waited for longer."""
    world = lost(World(2, 1))
    world.names_exits = named
    world.listen(world.node("s0"))
    world.listen(world.node("w0"))
    for name in ("w0", "w1"):
        world.kill(world.node(name), 0)
    world.launcher()
    seconds = world.state.settings.lease + (0 if named else PATIENCE_SECONDS)
    for _ in range(int(2 * seconds) - 2):
        world.tick()
    assert world.state.job.phase is JobPhase.REBUILDING
    for _ in range(3):
        world.tick()
    assert world.state.job.phase is JobPhase.FINISHED


@pytest.mark.parametrize("introduced", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_a_worker_that_has_left_has_not_finished_for_another_that_died(named, introduced):
    """The other died with the machine of the coordinator, which lost its journal by that: nobody has seen it end."""
    world = World(2, 1, checkpoint="file:///saved")
    world.ask(ev.ScaleAsked, 1, 1)
    world.until(Phase.ARMED)
    leaver, stayer = world.node("w1"), world.node("w0")
    assert leaver.prepared is not None
    lost(world)
    world.names_exits = named
    world.kill(stayer)
    world.exits.clear()
    if introduced:
        world.listen(leaver)
    leaver.switch()
    world.kill(leaver, 0)
    for _ in range(int(2 * (world.state.settings.lease + PATIENCE_SECONDS)) + 10):
        world.turn()
    assert world.state.job.phase is JobPhase.RESTORING
    assert "no worker answered" in world.state.job.reason


def test_a_server_that_ends_while_it_asks_has_not_finished_for_a_worker_that_died():
    """It has handed its blocks over, and hears only now that it may go."""
    world = World(2, 2)
    world.ask(ev.DrainAsked, "s1")
    world.until(Phase.ARMED)
    for node in world.alive:
        node.switch()
    lost(world)
    world.names_exits = False
    world.kill(world.node("w1"))
    world.exits.clear()
    for node in world.alive:
        world.listen(node)
    world.kill(world.node("s1"), 0)
    world.launcher()
    for _ in range(21):
        world.tick()
    assert world.state.job.finished == frozenset()
    assert "w1" in world.state.job.dead or "w1" in world.plan.dead


def test_an_exit_that_is_told_again_is_one():
    world = lost(World(3, 1))
    for name in ("s0", "w0"):
        world.listen(world.node(name))
    for name in ("w1", "w2"):
        world.kill(world.node(name), 0)
    for node in (world.exits[0], world.exits[0]):
        world.post(ev.Exited(world.now, node.nonce, "", 0))
    world.exits.clear()
    for _ in range(21):
        world.tick()
    assert world.state.job.finished == frozenset()


def test_one_script_that_ends_while_it_asks_is_no_death():
    world = lost(World(2, 1))
    world.listen(world.node("s0"))
    world.listen(world.node("w0"))
    node = world.node("w1")
    world.kill(node, 0)
    world.exits.clear()
    world.post(ev.Exited(world.now, node.nonce, "", 0))
    for _ in range(21):
        world.tick()
    assert world.state.job.finished == {"w1"}
    assert world.state.job.dead == frozenset()
    world.settle()
    assert world.counts == (1, 1)


def test_a_process_that_dies_while_it_asks_is_dead():
    world = lost(World(2, 1))
    for node in world.alive:
        world.listen(node)
    node = world.node("w1")
    world.kill(node, 137)
    world.exits.clear()
    world.post(ev.Exited(world.now, node.nonce, "", 137))
    for _ in range(21):
        world.tick()
    assert world.state.job.plan.kind is PlanKind.DEATH
    world.settle()
    assert world.counts == (2, 1)
    assert "w1" not in world.state.job.members


def test_workers_that_wait_in_a_pause_are_let_go():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2, migration=MigrationMode.PAUSE)
    plan = world.until(Phase.ARMED)
    for node in world.alive:
        if node.prepared is not None:
            node.switch()
    lost(world)
    world.settle()
    assert world.state.job.configuration.id == plan.number
    assert world.sent(ef.Resume, "w0")
    assert world.records[-1].phase is Phase.COMMITTED


def test_a_server_that_has_handed_its_blocks_over_may_go():
    """Its plan is not committed: it has switched, and waits to be told that frozen copies may go."""
    world = World(2, 2)
    world.ask(ev.DrainAsked, "s1")
    plan = world.until(Phase.ARMED)
    for node in world.alive:
        node.switch()
    lost(world)
    world.settle()
    assert world.state.job.configuration.id == plan.number
    assert world.counts == (2, 1)
    assert [node.exited for node in world.nodes if node.id == "s1"] == [0]


def test_new_processes_alone_need_not_wait_for_long():
    """A suspended job comes back: its coordinator's term is not the first, and nobody remembers anything."""
    world = World(2, 1, checkpoint="file:///saved")
    world.replace_dead = False
    for node in list(world.alive):
        world.kill(node, 143)
    world.exits.clear()
    world.nodes.clear()
    lost(world)
    for role in (Role.WORKER, Role.WORKER, Role.SERVER):
        assert world.state.job.phase is JobPhase.REBUILDING
        world.spawn(role)
    world.tick(SETTLE_SECONDS)
    assert world.state.job.phase is JobPhase.RESTORING
    assert "all its processes are new" in world.state.job.reason
    world.post(ev.CheckpointFound(world.now, error="none there"))
    world.settle()
    assert world.counts == (2, 1)


def test_a_checkpoint_that_was_asked_for_is_not_silently_done_without():
    world = World(2, 1, restore="file:///saved")
    for node in list(world.alive):
        world.kill(node, 143)
    world.exits.clear()
    world.nodes.clear()
    lost(world)
    world.tick(world.state.settings.lease + ALONE_SECONDS)
    world.post(ev.CheckpointFound(world.now, error="gone"))
    assert world.state.job.phase is JobPhase.FAILED
    assert "the job cannot go back: gone" in world.state.job.reason


def test_a_first_start_asks_nobody():
    world = World(1, 1)
    assert world.state.job.term == 1
    assert not any("without a journal" in line for line in world.logs)


def test_a_journal_is_believed_whatever_the_term():
    world = World(1, 1)
    world.state = world.journal.load(world.state.settings)
    world.post(ev.Started(world.now, 5))
    assert world.state.job.term == 5
    assert world.state.rebuilding is None
