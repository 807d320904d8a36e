"""Async and ssp: draws at the coordinator, and plans without a clock."""

import pytest
from played_job import ASYNC, OPTIMIZER, SSP, World

from coordinator import effects as ef
from coordinator import events as ev
from coordinator import view
from coordinator.batches import Batch, Book, Page
from coordinator.plan import Kind, Migration, Phase
from coordinator.protocol import step
from coordinator.records import encode
from coordinator.state import JobPhase
from elastic_ps.core.configuration import Role
from elastic_ps.core.data import DataSpec
from elastic_ps.core.model import Tensor

BEFORE_ARMED = [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING]
EACH_MODE = pytest.mark.parametrize("data", [ASYNC, SSP], ids=["async", "ssp"])


def sent(world, kind):
    return [e.directive for e in world.effects if isinstance(e, ef.Send) and isinstance(e.directive, kind)]


def ask(world, worker, number, epoch=None):
    """A draw; returns what it was answered, None: it waits."""
    return world.ask(ev.DrawAsked, worker, number, epoch)


def asked(world):
    """The number that the last draw's answer comes under."""
    return world.asked


def quiet(workers, data, **settings):
    """A job whose workers draw only where the test says so."""
    return World(workers, 1, data=data, drawing=False, **settings)


# ---- draws -----------------------------------------------------------------------------------------------------------


def test_draws_are_answered_in_the_words_of_the_contract():
    world = quiet(2, ASYNC)
    first, second = ask(world, "w0", 1), ask(world, "w1", 1, 0)
    assert (first.epoch, first.step, first.origin, first.batch, first.over) == (0, 0, "w0", 0, False)
    assert (second.step, second.origin, second.batch) == (1, "w1", 0)
    for number in range(2, 7):
        ask(world, "w0", number, 0)
    assert ask(world, "w0", 7, 0) is None, "w1 holds the last but one that is not done"
    waiting = asked(world)
    over = ask(world, "w1", 2, 0)
    assert (over.over, over.epoch) == (True, 1)
    assert world.replies[waiting] == over
    assert ask(world, "w0", 0).epoch == 1


def test_a_retry_gets_the_same_answer_also_after_a_restart():
    world = quiet(2, ASYNC)
    ask(world, "w0", 1)
    answer = ask(world, "w0", 2)
    before = world.state.book
    assert ask(world, "w0", 2) == answer
    world.kill_coordinator()
    assert world.state.book == before
    assert ask(world, "w0", 2) == answer
    assert world.state.book == before


def test_a_draw_is_journalled_before_its_answer_and_without_the_job():
    world = quiet(2, ASYNC)
    world.effects.clear()
    ask(world, "w0", 1)
    journalled, reply = world.effects
    assert isinstance(journalled, ef.Journal)
    assert journalled.job is None
    assert journalled.book == world.state.book
    assert isinstance(reply, ef.Reply)


def test_who_waits_is_answered_by_another_workers_draw():
    world = quiet(2, SSP)
    ask(world, "w0", 1)
    ask(world, "w0", 2)
    assert ask(world, "w0", 3) is None, "two steps ahead"
    waiting = asked(world)
    ask(world, "w1", 1)
    assert waiting not in world.replies
    ask(world, "w1", 2)
    assert world.replies[waiting].step == 3


def test_who_has_finished_holds_nobody_up_and_gives_its_batch_back():
    world = quiet(2, SSP)
    held = ask(world, "w1", 1)
    for number in range(1, 3):
        ask(world, "w0", number)
    assert ask(world, "w0", 3) is None
    waiting = asked(world)
    world.report(world.node("w1"), finished=True)
    assert world.replies[waiting] == held, "under its old name"
    assert ask(world, "w1", 2).why is ef.Why.ENDING


def test_a_draw_of_a_joiner_waits_until_it_is_a_member():
    world = quiet(1, ASYNC)
    ask(world, "w0", 1)
    world.ask(ev.ScaleAsked, 2, 1)
    world.until(Phase.SYNCING)
    assert ask(world, "w1", 0).epoch == 0, "where the job is it may know"
    assert ask(world, "w1", 1) is None
    waiting = asked(world)
    world.settle()
    assert world.replies[waiting].origin == "w1"


def test_a_leaver_that_waits_is_released_when_its_leave_is_decided():
    world = quiet(2, SSP)
    ask(world, "w1", 1)
    ask(world, "w1", 2)
    assert ask(world, "w1", 3) is None
    waiting = asked(world)
    world.ask(ev.DrainAsked, "w1")
    world.until(Phase.ARMED)
    assert world.replies[waiting].why is ef.Why.ENDING
    assert world.state.book.pages["w1"].open is None, "what it had done is done"
    assert world.state.book.done == 2
    world.settle()
    assert world.state.book.pages.keys() == {"w0"}


def test_a_draw_that_nobody_waits_for_is_forgotten():
    world = quiet(2, SSP)
    ask(world, "w0", 1)
    ask(world, "w0", 2)
    ask(world, "w0", 3)
    world.post(ev.Withdrawn(world.now, asked(world)))
    assert world.state.draws == ()
    ask(world, "w1", 1)
    ask(world, "w1", 2)
    assert world.state.book.pages["w0"] == Page(2, 2, None, world.state.book.pages["w0"].answer)
    assert ask(world, "w0", 3).step == 4


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (DataSpec(True, 70, 10), "this job is sync"),
        (DataSpec(consistency="async"), "data: static"),
    ],
)
def test_jobs_whose_batches_are_not_drawn_say_so(data, says):
    world = quiet(1, data)
    for number in (0, 1):
        reply = ask(world, "w0", number)
        assert reply.why is ef.Why.PRECONDITION
        assert says in reply.text


def test_before_the_data_is_known_there_is_only_the_epoch():
    world = World(1, 1, declare=False)
    world.settle()
    assert ask(world, "w0", 0).epoch == 0
    assert "no Sampler has been declared" in ask(world, "w0", 1).text


def test_draws_that_no_worker_makes_are_invalid():
    world = quiet(1, ASYNC)
    ask(world, "w0", 1)
    ask(world, "w0", 2)
    for reply, says in (
        (ask(world, "w0", 1), "its last one answered is 2"),
        (ask(world, "w0", 3, 4), "epoch 4 has not begun: the job is in epoch 0"),
        (ask(world, "s0", 1), "s0 is no worker"),
    ):
        assert reply.why is ef.Why.INVALID
        assert says in reply.text
    assert world.state.book.done == 1


def test_the_end_of_the_job_releases_who_waits_and_who_comes():
    world = quiet(2, SSP)
    ask(world, "w0", 1)
    ask(world, "w0", 2)
    assert ask(world, "w0", 3) is None
    waiting = asked(world)
    world.ask(ev.StopAsked)
    assert world.replies[waiting].why is ef.Why.ENDING
    assert ask(world, "w1", 1).why is ef.Why.ENDING


def test_status_counts_batches_and_the_fastest_workers_exchanges():
    world = quiet(2, ASYNC)
    for number in range(1, 4):
        ask(world, "w0", number)
    ask(world, "w1", 1)
    world.node("w0").version, world.node("w1").version, world.node("s0").version = 2, 0, 40
    for node in world.alive:
        world.report(node)
    status = view.status(world.state, world.now)
    assert (status.epoch, status.step, status.version) == (0, 2, 2)
    assert status.data.consistency == "async"


# ---- plans without a clock -------------------------------------------------------------------------------------------


@EACH_MODE
@pytest.mark.parametrize("mode", Migration)
def test_nodes_of_both_roles_join_and_leave_without_a_clock(data, mode):
    world = World(1, 1, data=data)
    world.check_batches(1)
    for workers, servers in ((3, 2), (2, 3), (1, 1)):
        world.ask(ev.ScaleAsked, workers, servers, migration=mode)
        world.settle()
        assert world.counts == (workers, servers)
        world.check_batches(world.state.book.epoch + 1)
    assert not sent(world, ef.Arm)
    scaled = [plan for plan in world.records if plan.kind is Kind.SCALE]
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
    assert (world.plan.kind, world.plan.dead) == (Kind.DEATH, {"w2"})
    world.settle()
    assert world.counts == (3, 2), "the wish is taken up again, the dead worker is replaced"
    world.check_batches(world.state.book.epoch + 2)


def test_a_batch_is_its_holders_until_the_death_plan_has_landed():
    world = quiet(2, ASYNC)
    held = ask(world, "w1", 1)
    world.kill(world.node("w1"))
    world.launcher()
    assert ask(world, "w0", 1).step == 1
    world.until(Phase.ARMED)
    assert ask(world, "w0", 2).step == 2
    world.settle()
    assert ask(world, "w0", 3) == held


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
    assert phases[armed.id] == (Kind.SCALE, Phase.COMMITTED)
    assert phases[armed.id + 1] == (Kind.DEATH, Phase.COMMITTED)
    assert world.counts == (3, 2), "the dead one is replaced"


def test_a_leaver_that_dies_while_its_leave_is_decided_needs_no_plan_of_its_own():
    world = World(3, 1, data=ASYNC)
    world.ask(ev.DrainAsked, "w1")
    world.until(Phase.ARMED)
    world.kill(world.node("w1"))
    world.settle()
    assert world.counts == (2, 1)
    assert [plan.kind for plan in world.records] == [Kind.START, Kind.SCALE]
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


def saved(world):
    """Run until the checkpoint is whole; returns its manifest's effect."""
    before = len(world.effects)
    for _ in range(10):
        world.turn()
        for effect in world.effects[before:]:
            if isinstance(effect, ef.WriteManifest):
                world.post(ev.ManifestWritten(world.now, effect.url, 10))
                return effect
    raise AssertionError(f"no checkpoint: {world.describe()}")


def test_a_checkpoint_is_written_at_once_from_the_book_as_it_stood_before():
    world = quiet(2, ASYNC, checkpoint="/ck")
    for worker, number in (("w0", 1), ("w1", 1), ("w0", 2)):
        ask(world, worker, number)
    world.ask(ev.CheckpointAsked)
    number = asked(world)
    save = sent(world, ef.Save)[-1]
    ask(world, "w0", 3)
    manifest = saved(world).manifest
    assert manifest["book"] == encode(Book(0, 3, (Batch(1), Batch(2))))
    assert manifest["version"] == save.clock
    assert world.replies[number].version == save.clock
    assert any("consistent per block only" in line for line in world.logs)


def test_the_names_of_checkpoints_grow():
    world = quiet(1, ASYNC, checkpoint="/ck")
    urls = []
    for _ in range(3):
        world.ask(ev.CheckpointAsked)
        urls.append(saved(world).url)
        world.kill_coordinator()
        world.settle()
    world.ask(ev.CheckpointAsked)
    world.declare(world.node("w0"), [Tensor(0, "s:more", (4,), "float32")], ASYNC, optimizer=OPTIMIZER)
    urls.append(saved(world).url)
    assert urls == sorted(set(urls))


def test_a_restore_starts_from_the_book_of_the_checkpoint():
    world = quiet(2, ASYNC, checkpoint="/ck")
    for worker, number in (("w0", 1), ("w1", 1), ("w0", 2)):
        ask(world, worker, number)
    world.ask(ev.CheckpointAsked)
    written = saved(world)
    for number in range(3, 9):
        ask(world, "w0", number)
    term = world.state.job.term
    world.kill(world.node("s0"))
    world.launcher()
    assert ask(world, "w0", 9).why is ef.Why.ENDING
    world.post(ev.CheckpointFound(world.now, written.url, written.manifest))
    world.settle()
    assert world.state.job.phase is JobPhase.RUNNING
    assert [ask(world, "w2", number).step for number in (1, 2, 3)] == [1, 2, 3]
    assert ask(world, "w3", 1).origin == "w3"
    void = world.state.job.voids[-1]
    assert (void.term, void.version) == (term + 1, 0)
    assert [step for step in range(4) if not void.takes_back(term, 77, 0, step)] == [0]
    assert not void.takes_back(term + 1, 0, 0, 1)
    world.ask(ev.CheckpointAsked)
    assert saved(world).url > written.url
    assert world.state.version == max(node.version for node in world.alive)


# ---- restarts at every point -----------------------------------------------------------------------------------------


def scenario(world):
    world.ask(ev.ScaleAsked, 2, 2)
    for _ in range(8):
        world.turn()
    world.ask(ev.ScaleAsked, 1, 1)
    for _ in range(8):
        world.turn()


def effects_of_scenario():
    world = World(1, 1, data=SSP)
    before = len(world.effects)
    scenario(world)
    return len(world.effects) - before


@pytest.mark.parametrize("at", range(0, effects_of_scenario(), 2))
def test_killed_at_any_effect_each_batch_is_done_once(at):
    """Every second boundary between effects, draws among them."""
    world = World(1, 1, data=SSP)
    post, origin, killed = world.post, len(world.effects), []

    def killing(event):
        _, effects = step(world.state, event)
        seen = len(world.effects) - origin
        if not killed and seen <= at < seen + len(effects):
            killed.append(at)
            world.kill_after = at - seen
        post(event)

    world.post = killing
    scenario(world)
    world.settle()
    assert killed == [at]
    assert world.state.job.phase is JobPhase.RUNNING
    assert {node.role for node in world.alive} == set(Role)
    world.check_batches(world.state.book.epoch + 1)
