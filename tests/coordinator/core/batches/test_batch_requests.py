"""Draws at the coordinator of an async or ssp job: who gets which batch, who waits, who is refused."""

from dataclasses import replace

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.batches.async_batches import WorkerPage
from coordinator.core.job import StopOrder
from coordinator.core.plans.plan import Phase
from coordinator.server import status_view
from elastic_ps.core.data_order import DataSpec
from tests.coordinator.played_job import ASYNC, SSP, World


def test_draws_are_answered_in_the_words_of_the_contract():
    world = World(2, 1, data=ASYNC, drawing=False)
    first, second = world.draw("w0", 1), world.draw("w1", 1, 0)
    assert (first.epoch, first.step, first.origin, first.batch, first.over) == (0, 0, "w0", 0, False)
    assert (second.step, second.origin, second.batch) == (1, "w1", 0)
    for number in range(2, 7):
        world.draw("w0", number, 0)
    assert world.draw("w0", 7, 0) is None, "w1 holds the last but one that is not done"
    waiting = world.asked
    over = world.draw("w1", 2, 0)
    assert (over.over, over.epoch) == (True, 1)
    assert world.replies[waiting] == over
    assert world.draw("w0", 0).epoch == 1


def test_a_retry_gets_the_same_answer_also_after_a_restart():
    world = World(2, 1, data=ASYNC, drawing=False)
    world.draw("w0", 1)
    answer = world.draw("w0", 2)
    before = world.state.book
    assert world.draw("w0", 2) == answer
    world.kill_coordinator()
    assert world.state.book == before
    assert world.draw("w0", 2) == answer
    assert world.state.book == before


def test_a_draw_is_journalled_before_its_answer_and_without_the_job():
    world = World(2, 1, data=ASYNC, drawing=False)
    world.effects.clear()
    world.draw("w0", 1)
    journalled, reply = world.effects
    assert isinstance(journalled, ef.WriteJournal)
    assert journalled.job is None
    assert journalled.book == world.state.book
    assert isinstance(reply, ef.Reply)


def test_who_waits_is_answered_by_another_workers_draw():
    world = World(2, 1, data=SSP, drawing=False)
    world.draw("w0", 1)
    world.draw("w0", 2)
    assert world.draw("w0", 3) is None, "two steps ahead"
    waiting = world.asked
    world.draw("w1", 1)
    assert waiting not in world.replies
    world.draw("w1", 2)
    assert world.replies[waiting].step == 3


def test_who_has_finished_holds_nobody_up_and_gives_its_batch_back():
    world = World(2, 1, data=SSP, drawing=False)
    held = world.draw("w1", 1)
    for number in range(1, 3):
        world.draw("w0", number)
    assert world.draw("w0", 3) is None
    waiting = world.asked
    world.report(world.node("w1"), finished=True)
    assert world.replies[waiting] == held, "under its old name"
    assert world.draw("w1", 2).why is ef.Why.ENDING


def test_a_draw_of_a_joiner_waits_until_it_is_a_member():
    world = World(1, 1, data=ASYNC, drawing=False)
    world.draw("w0", 1)
    world.ask(ev.ScaleAsked, 2, 1)
    world.until(Phase.SYNCING)
    assert world.draw("w1", 0).epoch == 0, "where the job is it may know"
    assert world.draw("w1", 1) is None
    waiting = world.asked
    world.settle()
    assert world.replies[waiting].origin == "w1"


def test_a_leaver_that_waits_is_released_when_its_leave_is_decided():
    world = World(2, 1, data=SSP, drawing=False)
    world.draw("w1", 1)
    world.draw("w1", 2)
    assert world.draw("w1", 3) is None
    waiting = world.asked
    world.ask(ev.DrainAsked, "w1")
    world.until(Phase.ARMED)
    assert world.replies[waiting].why is ef.Why.ENDING
    assert world.state.book.pages["w1"].open is None, "what it had done is done"
    assert world.state.book.done == 2
    world.settle()
    assert world.state.book.pages.keys() == {"w0"}


def test_a_draw_that_nobody_waits_for_is_forgotten():
    world = World(2, 1, data=SSP, drawing=False)
    world.draw("w0", 1)
    world.draw("w0", 2)
    world.draw("w0", 3)
    world.post(ev.Withdrawn(world.now, world.asked))
    assert world.state.draws == ()
    world.draw("w1", 1)
    world.draw("w1", 2)
    assert world.state.book.pages["w0"] == WorkerPage(2, 2, None, world.state.book.pages["w0"].answer)
    assert world.draw("w0", 3).step == 4


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (DataSpec(True, 70, 10), "this job is sync"),
        (DataSpec(consistency="async"), "data: static"),
    ],
)
def test_jobs_whose_batches_are_not_drawn_say_so(data, says):
    world = World(1, 1, data=data, drawing=False)
    for number in (0, 1):
        reply = world.draw("w0", number)
        assert reply.why is ef.Why.PRECONDITION
        assert says in reply.text


def test_before_the_data_is_known_there_is_only_the_epoch():
    world = World(1, 1, declare=False)
    world.settle()
    assert world.draw("w0", 0).epoch == 0
    assert "no Sampler has been declared" in world.draw("w0", 1).text


def test_draws_that_no_worker_makes_are_invalid():
    world = World(1, 1, data=ASYNC, drawing=False)
    world.draw("w0", 1)
    world.draw("w0", 2)
    for reply, says in (
        (world.draw("w0", 1), "its last one answered is 2"),
        (world.draw("w0", 3, 4), "epoch 4 has not begun: the job is in epoch 0"),
        (world.draw("s0", 1), "s0 is no worker"),
    ):
        assert reply.why is ef.Why.INVALID
        assert says in reply.text
    assert world.state.book.done == 1


def test_the_end_of_the_job_releases_who_waits_and_who_comes():
    world = World(2, 1, data=SSP, drawing=False)
    world.draw("w0", 1)
    world.draw("w0", 2)
    assert world.draw("w0", 3) is None
    waiting = world.asked
    world.ask(ev.StopAsked)
    assert world.replies[waiting].why is ef.Why.ENDING
    assert world.draw("w1", 1).why is ef.Why.ENDING


def test_status_counts_batches_and_the_fastest_workers_exchanges():
    world = World(2, 1, data=ASYNC, drawing=False)
    for number in range(1, 4):
        world.draw("w0", number)
    world.draw("w1", 1)
    world.node("w0").version, world.node("w1").version, world.node("s0").version = 2, 0, 40
    for node in world.alive:
        world.report(node)
    status = status_view.status(world.state, world.now)
    assert (status.epoch, status.step, status.version) == (0, 2, 2)
    assert status.data.consistency == "async"


def test_a_worker_that_a_restore_ends_is_told_so_wherever_its_loop_is():
    """Found by the simulated world: its loop was in an epoch that the book did not stand at any more."""
    world = World(2, 1, data=ASYNC, drawing=False)
    ordered = replace(world.state.job.nodes["w0"], stop=StopOrder("back to the checkpoint", restart=True))
    world.state = replace(world.state, job=replace(world.state.job, nodes={**world.state.job.nodes, "w0": ordered}))
    assert world.draw("w0", 1, 4).why is ef.Why.ENDING
    assert world.draw("w1", 1, 4).why is ef.Why.INVALID
