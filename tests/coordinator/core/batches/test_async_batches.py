"""The book of batches, alone: any order of draws, retries, joins and deaths, with blocks that take each batch once."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.core.batches.async_batches import Batch, Book, DrawAnswer, complete, draw, enrol, restorable
from elastic_ps.core.data_order import DataSpec

ASYNC = DataSpec(True, 50, 10, consistency="async")
BLOCKS = range(2)


def asked(book, worker, number, epoch=None, spec=ASYNC):
    return draw(complete(book, worker, number, spec), worker, number, epoch, spec)


def given_all(book, worker, count, spec=ASYNC):
    """`worker` draws `count` times."""
    first = book.pages[worker].answer.number + 1 if book.pages[worker].answer else 1
    for number in range(first, first + count):
        book, answer = asked(book, worker, number, None, spec)
        assert answer is not None
    return book


def test_steps_are_given_in_order_under_the_name_of_who_draws_them():
    book = enrol(Book(), {"w0", "w1"})
    book, first = asked(book, "w0", 1)
    book, second = asked(book, "w1", 1)
    book, third = asked(book, "w0", 2)
    assert [first, second, third] == [
        DrawAnswer(1, 0, Batch(0, "w0", 0)),
        DrawAnswer(1, 0, Batch(1, "w1", 0)),
        DrawAnswer(2, 0, Batch(2, "w0", 1)),
    ]
    assert (book.done, len(book.open)) == (1, 2)


def test_a_retry_gets_the_same_answer_and_completes_nothing():
    book = given_all(enrol(Book(), {"w0"}), "w0", 3)
    assert asked(book, "w0", 3) == (book, DrawAnswer(3, 0, Batch(2, "w0", 2)))


def test_what_a_worker_held_goes_to_another_first_and_under_its_old_name():
    book = given_all(enrol(Book(), {"w0", "w1"}), "w0", 2)
    book, answer = asked(enrol(book, {"w1"}), "w1", 1)
    assert answer.batch == Batch(1, "w0", 1)
    book, answer = asked(book, "w1", 2)
    assert answer.batch == Batch(2, "w1", 0), "its own first"


def test_an_epoch_is_over_when_its_last_batch_is_done():
    book = enrol(Book(), {"w0", "w1"})
    book, _ = asked(book, "w1", 1, 0)
    for number in range(1, 5):
        book, answer = asked(book, "w0", number, 0)
        assert answer.batch is not None
    book, answer = asked(book, "w0", 5, 0)
    assert answer is None, "w1 holds the last one"
    book = complete(book, "w1", 2, ASYNC)
    assert (book.epoch, book.fresh) == (1, 0)
    book, answer = draw(book, "w0", 5, 0, ASYNC)
    assert answer == DrawAnswer(5, 1)
    book, answer = asked(book, "w0", 6, 1)
    assert answer == DrawAnswer(6, 1, Batch(0, "w0", 4))
    book, answer = draw(book, "w1", 2, 0, ASYNC)
    assert answer == DrawAnswer(2, 1), "its loop was in the old epoch"
    book, answer = asked(book, "w1", 3, None)
    assert answer.batch == Batch(1, "w1", 1), "any epoch"


def test_under_ssp_the_fastest_waits_for_the_slowest_and_a_joiner_holds_nobody_up():
    spec = DataSpec(True, 1000, 10, consistency="ssp", staleness=2)
    book = enrol(Book(), {"w0", "w1"})
    book = given_all(book, "w0", 2, spec)
    book, answer = asked(book, "w0", 3, None, spec)
    assert answer is None, "it has completed 2, w1 none"
    joined = enrol(book, {"w0", "w1", "w2"})
    assert joined.pages["w2"].completed == 0
    assert draw(enrol(book, {"w0"}), "w0", 3, None, spec)[1] is not None, "nobody is left to wait for"
    book, _ = asked(book, "w1", 1, None, spec)
    book = complete(book, "w1", 2, spec)
    assert draw(book, "w0", 3, None, spec)[1] is not None
    assert enrol(book, {"w0", "w1", "w2"}).pages["w2"].completed == 1


def nobody_has(_batch):
    return False


def test_a_checkpoint_keeps_what_is_done_and_gives_the_rest_again_under_its_name():
    book = given_all(enrol(Book(), {"w0", "w1", "w2"}), "w0", 2)
    book, _ = asked(book, "w1", 1)
    book = restorable(enrol(book, {"w1", "w2"}), [], nobody_has)
    assert book == Book(0, 3, (Batch(1, "w0", 1), Batch(2, "w1", 0)))
    book, answer = asked(enrol(book, {"w7"}), "w7", 1)
    assert answer.batch == Batch(1, "w0", 1), "blocks that have it know it by this name"


def test_what_blocks_took_while_they_were_saved_is_given_again_under_its_name():
    """Step 1 was drawn before; 2 to 4, and one of the next epoch, while servers saved."""
    before = Book(0, 2, (Batch(1, "w0", 1),))
    drawn = [(0, Batch(2, "w2", 0)), (0, Batch(3, "w3", 0)), (0, Batch(4, "w3", 1)), (1, Batch(1, "w2", 1))]
    book = restorable(before, drawn, lambda batch: batch in (Batch(3, "w3", 0), Batch(1, "w2", 1)))
    assert (book.fresh, book.returned) == (4, (*before.returned, Batch(2, "w2", 0), Batch(3, "w3", 0)))
    assert book.ahead == ((1, Batch(1, "w2", 1)),)
    assert len(book.named) == 4
    book, given = enrol(book, {"w7"}), []
    for number in range(1, 9):
        book, answer = asked(book, "w7", number)
        given.append((answer.epoch, answer.batch))
    assert given[:3] == [(0, before.returned[0]), *drawn[:2]]
    assert [(epoch, batch.step) for epoch, batch in given[3:]] == [(0, 4), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert given[5][1] == Batch(1, "w2", 1), "the one that blocks hold"
    assert not book.ahead


def test_of_one_origin_the_later_batch_waits_until_the_earlier_is_done():
    """A block that has taken a batch takes none of before, so the order must stay, whoever does them."""
    book = enrol(Book(0, 5, (Batch(3, "w0", 1), Batch(4, "w0", 2))), {"w7", "w8"})
    book, first = asked(book, "w7", 1)
    book, other = asked(book, "w8", 1)
    assert (first.batch, other) == (Batch(3, "w0", 1), None)
    book = enrol(book, {"w8"})
    book, again = asked(book, "w8", 1)
    assert again.batch == first.batch, "though it was given back behind the later one"
    book, after = asked(book, "w8", 2)
    assert after.batch == Batch(4, "w0", 2)


@pytest.mark.parametrize(("last", "steps"), [("short", 6), ("drop", 5), ("wrap", 6)])
def test_an_epoch_has_the_steps_of_its_data(last, steps):
    spec = DataSpec(True, 53, 10, last, consistency="async")
    book, given = enrol(Book(), {"w0"}), 0
    while True:
        book, answer = asked(book, "w0", given + 1, 0, spec)
        if answer.batch is None:
            break
        given += 1
    assert given == steps


# ---- any interleaving ------------------------------------------------------------------------------------------------


@dataclass
class Played:
    """A worker: `held` with its epoch, the blocks that have not taken it, and whether a draw waits for its answer."""

    number: int = 0
    epoch: int = 0
    held: tuple[int, Batch] | None = None
    lacking: frozenset[int] = frozenset()
    waiting: bool = False


class DurableJob(RuleBasedStateMachine):
    """Every (epoch, step) has one holder at a time and enters every block once; nobody waits for ever."""

    @initialize(
        workers=st.integers(1, 4), steps=st.integers(1, 7), staleness=st.integers(0, 3), last=st.sampled_from(["", "x"])
    )
    def begin(self, workers, steps, staleness, last):
        samples = 10 * steps - (3 if last else 0)
        self.spec = DataSpec(True, samples, 10, consistency="ssp" if staleness else "async", staleness=staleness)
        self.book, self.workers, self.born = Book(), {}, 0
        self.taken = [Counter() for _ in BLOCKS]
        self.last = [Counter() for _ in BLOCKS]
        for _ in range(workers):
            self.join()

    def pick(self, index):
        name = sorted(self.workers)[index % len(self.workers)]
        return name, self.workers[name]

    def enrol(self):
        self.book = enrol(self.book, self.workers.keys())

    @rule()
    def join(self):
        if len(self.workers) < 5:
            self.workers[f"w{self.born}"] = Played(epoch=self.book.epoch)
            self.born += 1
            self.enrol()

    @rule(index=st.integers(0, 20))
    def leave(self, index):
        if len(self.workers) > 1:
            del self.workers[self.pick(index)[0]]
            self.enrol()

    @rule(index=st.integers(0, 20), block=st.sampled_from(BLOCKS))
    def push(self, index, block):
        """As `Store.applied`: a block takes a batch of an origin once, and only ever later ones."""
        worker = self.pick(index)[1]
        if worker.held is not None and block in worker.lacking:
            (epoch, batch), worker.lacking = worker.held, worker.lacking - {block}
            if batch.number >= self.last[block][batch.origin]:
                self.last[block][batch.origin] = batch.number + 1
                self.taken[block][epoch, batch.step] += 1

    @rule(index=st.integers(0, 20))
    def ask(self, index):
        name, worker = self.pick(index)
        if not worker.waiting and not worker.lacking:
            worker.number, worker.held, worker.waiting = worker.number + 1, None, True
            self.book = complete(self.book, name, worker.number, self.spec)

    @rule(index=st.integers(0, 20), any_epoch=st.booleans())
    def hear(self, index, any_epoch):
        name, worker = self.pick(index)
        if not worker.waiting:
            return
        epoch = None if any_epoch else worker.epoch
        self.book, answer = draw(self.book, name, worker.number, epoch, self.spec)
        if answer is None:
            return
        worker.waiting, worker.epoch = False, answer.epoch
        if answer.batch is not None:
            worker.held, worker.lacking = (answer.epoch, answer.batch), frozenset(BLOCKS)
            others = [page.completed for other, page in self.book.pages.items() if other != name]
            ahead = self.book.pages[name].completed - min(others, default=0)
            assert self.spec.consistency == "async" or not others or ahead < self.spec.staleness

    @rule(index=st.integers(0, 20), count=st.integers(1, 8))
    def go_on(self, index, count):
        for _ in range(count):
            for block in BLOCKS:
                self.push(index, block)
            self.ask(index)
            self.hear(index, any_epoch=False)
            self.each_batch_is_in_one_place()
            index += 1

    @rule(index=st.integers(0, 20))
    def retry(self, index):
        name, worker = self.pick(index)
        if not worker.waiting and worker.number:
            book, answer = asked(self.book, name, worker.number, worker.epoch, self.spec)
            assert book is self.book
            assert (answer.batch and (answer.epoch, answer.batch)) == worker.held

    @invariant()
    def each_batch_is_in_one_place(self):
        held = [batch.step for batch in (*self.book.open, *self.book.returned)]
        assert len(held) == len(set(held))
        assert all(step < self.book.fresh <= self.spec.steps_per_epoch for step in held)
        for name, worker in self.workers.items():
            assert self.book.pages[name].open == (worker.held[1] if worker.held else None)

    def teardown(self):
        if not hasattr(self, "book"):
            return
        until = self.book.epoch + 2
        for _ in range(3 * (self.spec.steps_per_epoch + 1) * (len(self.workers) + 1)):
            self.go_on(0, len(self.workers))
        assert self.book.epoch >= until, f"hangs: {self.book}"
        for taken in self.taken:
            for epoch in range(self.book.epoch):
                for step in range(self.spec.steps_per_epoch):
                    assert taken[epoch, step] == 1, f"epoch {epoch} step {step}"


DurableJob.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None, derandomize=True)
TestJob = DurableJob.TestCase
TestJob.pytestmark = [pytest.mark.slow]
