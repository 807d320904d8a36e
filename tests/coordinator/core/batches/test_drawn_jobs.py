"""Plans and checkpoints of async and ssp jobs, which have no clock."""

from dataclasses import replace

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.batches.async_batches import Batch, Book
from coordinator.core.checkpoints.ending import restored
from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.plans.plan import MigrationMode, Phase, PlanKind
from coordinator.core.plans.scale_goal import ScaleGoal
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Tensor
from tests.coordinator.played_job import ASYNC, OPTIMIZER, SSP, World

BEFORE_ARMED = [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING]
EACH_MODE = pytest.mark.parametrize("data", [ASYNC, SSP], ids=["async", "ssp"])


@EACH_MODE
@pytest.mark.parametrize("mode", MigrationMode)
def test_nodes_of_both_roles_join_and_leave_without_a_clock(data, mode):
    world = World(1, 1, data=data)
    world.check_batches(1)
    for workers, servers in ((3, 2), (2, 3), (1, 1)):
        world.ask(ev.ScaleAsked, workers, servers, migration=mode)
        world.settle()
        assert world.counts == (workers, servers)
        world.check_batches(world.state.book.epoch + 1)
    assert not world.sent(ef.Arm)
    scaled = [plan for plan in world.records if plan.kind is PlanKind.SCALE]
    assert [(plan.phase, plan.clock) for plan in scaled] == [(Phase.COMMITTED, None)] * 3
    assert world.state.job.configuration.ranks.keys() == world.state.book.pages.keys()


def test_a_plan_is_committed_when_the_new_owners_have_their_blocks():
    world = World(2, 1, data=ASYNC)
    world.ask(ev.ScaleAsked, 2, 2)
    world.until(Phase.ARMED)
    late = world.node("s1")
    late.arrive = lambda: None
    for _ in range(8):
        world.turn()
    assert world.plan.phase is Phase.ARMED
    assert world.counts == (2, 2), "in force"
    assert world.state.job.nodes["s0"].left is False
    del late.arrive
    world.settle()
    assert world.records[-1].phase is Phase.COMMITTED


@EACH_MODE
@pytest.mark.parametrize("phase", BEFORE_ARMED)
def test_a_death_before_armed_cancels_and_its_batch_goes_to_another(data, phase):
    world = World(3, 1, data=data)
    world.check_batches(1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(phase)
    world.kill(world.node("w2"))
    world.launcher()
    assert (world.plan.kind, world.plan.dead) == (PlanKind.DEATH, {"w2"})
    world.settle()
    assert world.counts == (3, 2), "the wish is taken up again, the dead worker is replaced"
    world.check_batches(world.state.book.epoch + 2)


def test_a_batch_is_its_holders_until_the_death_plan_has_landed():
    world = World(2, 1, data=ASYNC, drawing=False)
    held = world.draw("w1", 1)
    world.kill(world.node("w1"))
    world.launcher()
    assert world.draw("w0", 1).step == 1
    world.until(Phase.ARMED)
    assert world.draw("w0", 2).step == 2
    world.settle()
    assert world.draw("w0", 3) == held


@EACH_MODE
def test_a_death_after_armed_waits_until_what_is_decided_is_committed(data):
    world = World(3, 1, data=data)
    world.ask(ev.ScaleAsked, 3, 2)
    armed = world.until(Phase.ARMED)
    world.kill(world.node("w1"))
    world.launcher()
    assert world.plan.id == armed.id
    world.settle()
    world.check_batches(world.state.book.epoch + 2)
    phases = {plan.id: (plan.kind, plan.phase) for plan in world.records}
    assert phases[armed.id] == (PlanKind.SCALE, Phase.COMMITTED)
    assert phases[armed.id + 1] == (PlanKind.DEATH, Phase.COMMITTED)
    assert world.counts == (3, 2), "the dead one is replaced"


def test_a_leaver_that_dies_while_its_leave_is_decided_needs_no_plan_of_its_own():
    world = World(3, 1, data=ASYNC)
    world.ask(ev.DrainAsked, "w1")
    world.until(Phase.ARMED)
    world.kill(world.node("w1"))
    world.settle()
    assert world.counts == (2, 1)
    assert [plan.kind for plan in world.records] == [PlanKind.START, PlanKind.SCALE]
    world.check_batches(world.state.book.epoch + 1)


@EACH_MODE
@pytest.mark.parametrize("phase", [*BEFORE_ARMED, Phase.ARMED])
def test_a_coordinator_that_is_started_again_finishes_or_cancels(data, phase):
    world = World(2, 1, data=data)
    world.check_batches(1)
    world.ask(ev.ScaleAsked, 3, 2)
    plan = world.until(phase)
    world.kill_coordinator()
    world.settle()
    assert world.counts == (3, 2)
    if phase is Phase.ARMED:
        assert world.state.job.configuration.id == plan.number
    world.check_batches(world.state.book.epoch + 2)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_written_at_once_from_the_book_as_it_stood_before():
    world = World(2, 1, data=ASYNC, drawing=False, checkpoint="/ck")
    for worker, number in (("w0", 1), ("w1", 1), ("w0", 2)):
        world.draw(worker, number)
    world.ask(ev.CheckpointAsked)
    number = world.asked
    save = world.sent(ef.SaveBlocks)[-1]
    world.draw("w0", 3)
    manifest = world.saved().manifest
    assert manifest.book == Book(0, 3, (Batch(1, "w1", 0), Batch(2, "w0", 1)))
    assert manifest.version == save.clock
    assert world.replies[number].version == save.clock
    assert any("consistent per block only" in line for line in world.logs)


def test_new_workers_have_names_that_no_batch_of_the_checkpoint_knows():
    """Else a block would take a new worker's first batches for those that it has taken of the old one."""
    world = World(2, 1, data=ASYNC, drawing=False, checkpoint="/ck")
    for worker in ("w0", "w1"):
        world.draw(worker, 1)
    world.ask(ev.CheckpointAsked)
    saved = world.saved().manifest
    assert {batch.origin for batch in saved.book.named} == {"w0", "w1"}
    another = restored(DurableJob(ScaleGoal(1, 1), "another"), "/ck", saved, 0)
    assert another.registered == {Role.WORKER: 2}
    assert restored(replace(another, registered={Role.WORKER: 9}), "/ck", saved, 0).registered == {Role.WORKER: 9}


def test_the_names_of_checkpoints_grow():
    world = World(1, 1, data=ASYNC, drawing=False, checkpoint="/ck")
    urls = []
    for _ in range(3):
        world.ask(ev.CheckpointAsked)
        urls.append(world.saved().url)
        world.kill_coordinator()
        world.settle()
    world.ask(ev.CheckpointAsked)
    world.declare(world.node("w0"), [Tensor(0, "s:more", (4,), "float32")], ASYNC, optimizer=OPTIMIZER)
    urls.append(world.saved().url)
    assert urls == sorted(set(urls))


def test_a_restore_starts_from_the_book_of_the_checkpoint():
    world = World(2, 1, data=ASYNC, drawing=False, checkpoint="/ck")
    for worker, number in (("w0", 1), ("w1", 1), ("w0", 2)):
        world.draw(worker, number)
    world.ask(ev.CheckpointAsked)
    written = world.saved()
    for number in range(3, 9):
        world.draw("w0", number)
    term = world.state.job.term
    world.kill(world.node("s0"))
    world.launcher()
    assert world.draw("w0", 9).why is ef.Why.ENDING
    world.post(ev.CheckpointFound(world.now, written.url, written.manifest))
    world.settle()
    assert world.state.job.phase is JobPhase.RUNNING
    assert [world.draw("w2", number).step for number in (1, 2, 3)] == [1, 2, 3]
    assert world.draw("w3", 1).origin == "w3"
    void = world.state.job.voids[-1]
    assert (void.term, void.version) == (term + 1, 0)
    blocks = ((0, len(written.manifest.blocks)),)
    assert [list(void.kept(term, version, blocks)) for version in (2, 3)] == [list(blocks), []]
    assert void.kept(term + 1, 3, blocks) == blocks
    world.ask(ev.CheckpointAsked)
    assert world.saved().url > written.url
    assert world.state.version == max(node.version for node in world.alive)
