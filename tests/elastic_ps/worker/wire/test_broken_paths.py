"""A script leaves its loop over the sampler within a step: what it pushed counts, what it did not is yielded again."""

from contextlib import suppress

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.data.sampler import Sampler, epochs
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.script.numpy_array import NumpyArray
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.job_play import KEYS, ONE, JobPlay, filled
from tests.elastic_ps.worker.worker_harness import TENSORS

STEP = [KEYS]
TWO_EXCHANGES = [KEYS[:2], KEYS[2:]]


class Mishap(Exception):
    """Of the script."""


class Loops(JobPlay):
    """A script that leaves loops; the gradients of the n-th batch that it is given are n.

    Attributes:
        leaving: for each batch: the keys of each of its exchanges, and how it ends: None, "break", "raise".
        seen: the epochs and, as texts, the steps that it is given.
    """

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch)
        self.leaving = []
        self.seen = []
        self.store = None

    def script(self):
        leaving = enumerate(self.leaving, 1)
        for epoch in epochs(1):
            self.seen.append(epoch)
            with suppress(Mishap):
                for step, _indices, _batch in self.sampler():
                    self.seen.append(f"step {step}")
                    number, (pushes, end) = next(leaving)
                    self.push(pushes, number)
                    if end == "raise":
                        raise Mishap
                    if end == "break":
                        break
        assert next(leaving, None) is None

    def push(self, pushes, number):
        if pushes and self.store is None:
            self.store = self.job.open_store()
            if self.hyper is not None:
                self.store.set_optimizer(OptimizerSpec("sgd"), self.hyper)
            self.store.broadcast(KEYS, self.outs, [[out] for out in self.outs])
        for keys in pushes:
            gradient = NumpyArray(np.full(TENSORS[0].shape, number, np.float32))
            self.store.pushpull(keys, [[gradient]] * len(keys), [[self.outs[KEYS.index(key)]] for key in keys])

    def exchange(self, version, number, keys=KEYS):
        """The servers get what the `number`-th batch pushed for `keys` at `version`, and answer the next."""
        tensors = {KEYS.index(key) for key in keys}
        for server, blocks in self.owned():
            wanted = [block for block in blocks if block // 2 in tensors]
            assert server.await_push(wanted, ONE) == {block: filled(block, number) for block in wanted}
            assert {item.frame.version for item in server.of(Kind.PUSH)} <= {version}
            server.received.clear()
            server.answer(version + 1, blocks, ONE)


class DrawnLoops(Loops):
    def __init__(self, monkeypatch):
        super().__init__(monkeypatch)
        self.hyper = lambda _update: Hyper(lr=0.1)

    def sampler(self):
        return Sampler(self.samples, batch=8, consistency="async")

    def draw(self, *replies):
        for reply in replies:
            self.session.draws.put(reply)

    def end(self, version):
        """Of the epoch: every worker takes the values of the moment."""
        for server, blocks in self.owned():
            server.await_frames(Kind.PULL)
            server.answer(version, blocks, ONE)


@pytest.fixture
def play(monkeypatch):
    made = Loops(monkeypatch)
    yield made
    made.close()


@pytest.fixture
def drawn(monkeypatch):
    made = DrawnLoops(monkeypatch)
    yield made
    made.close()


def test_after_its_push_a_step_that_is_broken_off_is_done(play):
    play.leaving = [(STEP, None), (STEP, "break"), (STEP, "break")]
    running = play.run(workers=("w0",))
    play.exchange(0, number=2)
    play.exchange(1, number=3)
    running.result()
    assert play.seen == [0, "step 0", "step 0", 0, "step 1"]


@pytest.mark.parametrize("end", ["break", "raise"])
def test_before_its_push_a_step_that_is_broken_off_is_yielded_again(play, end):
    play.leaving = [(STEP, None), ([], end), (STEP, None), ([], end), (STEP, None)]
    running = play.run(workers=("w0",))
    play.exchange(0, number=3)
    play.exchange(1, number=5)
    running.result()
    assert play.seen == [0, "step 0", "step 0", 0, "step 0", "step 1", 0, "step 1"]


def test_a_step_that_is_broken_off_between_its_exchanges_makes_the_first_once(play):
    first, second = TWO_EXCHANGES
    play.leaving = [(TWO_EXCHANGES, None), ([first], "break"), (TWO_EXCHANGES, None), (TWO_EXCHANGES, None)]
    running = play.run(workers=("w0",))
    play.exchange(0, number=2, keys=first)
    play.exchange(1, number=3, keys=second)
    play.exchange(2, number=4, keys=first)
    play.exchange(3, number=4, keys=second)
    running.result()
    assert play.seen == [0, "step 0", "step 0", 0, "step 0", "step 1"]


def test_a_rehearsal_that_is_broken_off_after_its_push_is_performed(play):
    play.leaving = [(STEP, "break"), (STEP, None), (STEP, None)]
    running = play.run(workers=("w0",))
    play.exchange(0, number=2)
    play.exchange(1, number=3)
    running.result()
    assert play.seen == [0, "step 0", 0, "step 0", "step 1"]


def test_a_rehearsal_that_is_broken_off_before_its_push_is_begun_again(play):
    """A look at the first batch, before the network is made."""
    play.begin(workers=("w0",))
    for step, indices, _batch in play.sampler():
        assert (step, len(indices)) == (0, 8)
        break
    play.leaving = [(STEP, None), (STEP, None), (STEP, None)]
    running = play.run_on()
    play.exchange(0, number=2)
    play.exchange(1, number=3)
    running.result()
    assert play.seen == [0, "step 0", "step 0", "step 1"]


def test_epochs_whose_body_never_pushes_are_an_error(play):
    play.begin(workers=("w0",))
    play.leaving = [([], "break")]
    with pytest.raises(ConfigurationError, match=r"must iterate over an elastic_ps.Sampler, and train"):
        play.script()


def test_a_batch_that_is_broken_off_before_its_push_stays_this_workers(drawn):
    drawn.leaving = [(STEP, None), ([], "break"), (STEP, "break"), (STEP, None)]
    drawn.draw(pb.DrawReply(epoch=0), *(pb.DrawReply(step=step, origin="w0", batch=1 - step) for step in (1, 0)))
    drawn.draw(pb.DrawReply(epoch=1, over=True))
    running = drawn.run(workers=("w0",))
    drawn.exchange(0, number=3)
    drawn.exchange(1, number=4)
    drawn.end(3)
    running.result()
    assert drawn.seen == [0, "step 0", "step 1", 0, "step 1", 0, "step 0"]
    assert drawn.session.drawn == [(0, 0, True), (1, 0, False), (2, 0, False), (3, 0, False)]
