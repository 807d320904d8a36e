"""Gradients that are sent as they become ready, before those of other keys are."""

import threading

import numpy as np
import pytest

from elastic_ps.core.model import members
from elastic_ps.data.sampler import epochs
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.script.numpy_array import NumpyArray
from tests.elastic_ps.worker.job_play import KEYS, JobPlay, filled, slices
from tests.elastic_ps.worker.played_server import MODEL, S0, S1, SPLIT, TENSORS, TIMEOUT
from tests.elastic_ps.worker.worker_harness import ONE, TWO


class Coming(NumpyArray):
    """An array that a test says is ready."""

    def __init__(self, values):
        super().__init__(values)
        self.ready = threading.Event()
        self.broken = False

    @staticmethod
    def settle(arrays, to_write):
        for array in arrays if not to_write else ():
            assert array.ready.wait(TIMEOUT)
            if array.broken:
                raise ZeroDivisionError


class Overlapping(JobPlay):
    """Its script combines a step's pushpulls; the gradients of the rehearsal are ready."""

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch)
        monkeypatch.setattr("elastic_ps.worker.script.early_sends.PORTION_BYTES", 1)
        self.gradients = [Coming(np.zeros(tensor.shape, np.float32)) for tensor in TENSORS]
        self.fails = ""  # where the script's first attempt at the step raises

    def script(self):
        store = self.job.open_store()
        for _epoch in epochs(self.epochs):
            for number, (step, indices, _batch) in enumerate(self.sampler(), 1):
                if number == 1:
                    store.broadcast(KEYS, self.outs, [[out] for out in self.outs])
                    self.make_ready(0, 1, 2)
                self.yielded.append((step, indices.tolist()))
                if number > 1 and self.fails:
                    self.gradients[0].broken = self.fails == "in the middle"
                    with pytest.raises(ZeroDivisionError):
                        self.exchange_all(store, 7, fail=self.fails == "before")
                    self.gradients[0].broken = False
                self.exchange_all(store, number)
                for gradient in self.gradients if number == 1 else ():
                    gradient.ready.clear()

    def exchange_all(self, store, number, fail=False):
        with store.combined(overlap=True):
            for key, gradient, out in zip(KEYS, self.gradients, self.outs, strict=True):
                gradient.values[:] = number
                store.pushpull([key], [[gradient]], [[out]])
            if fail:
                raise ZeroDivisionError

    def make_ready(self, *tensors):
        for tensor in tensors:
            self.gradients[tensor].ready.set()

    def pushes(self, number):
        """By server, the blocks pushed under a configuration, in order."""
        return [
            [block for item in server.of(Kind.PUSH, number) for block in members(item.frame.runs)]
            for server in self.servers.values()
        ]


@pytest.fixture
def play(monkeypatch):
    made = Overlapping(monkeypatch)
    made.samples = 8
    yield made
    made.close()


def test_the_last_keys_are_sent_while_the_first_are_not_ready(play):
    running = play.run()
    s0, s1 = play.servers.values()
    play.make_ready(2)
    assert s0.await_push([4], ONE)[4] == filled(4, 2)
    assert s1.await_push([5], ONE)[5] == filled(5, 2)
    play.make_ready(1)
    s1.await_push([5, 2, 3], ONE)
    assert play.pushes(ONE) == [[4], [5, 2, 3]]
    play.make_ready(0)
    for server, blocks in play.owned():
        assert server.await_push(blocks, ONE) == {block: filled(block, 2) for block in blocks}
        assert slices(server, ONE) == {(0, 0, 0, 0, 4)}
        server.answer(1, blocks, ONE)
    running.result()
    assert [sorted(blocks) for blocks in play.pushes(ONE)] == [S0, S1]  # each once
    assert play.holds(1)
    for index, out in enumerate(play.outs):
        np.testing.assert_array_equal(out.values, play.node.inbox.tensor(index))


@pytest.mark.parametrize("workers", [("w0", "w1"), ("w0",)], ids=["same-slices", "other-slices"])
def test_what_was_sent_under_another_configuration_is_sent_again(play, workers):
    running = play.run()
    s0, s1 = play.servers.values()
    play.make_ready(2)
    s0.await_push([4], ONE)
    s1.await_push([5], ONE)
    play.prepare(play.configuration(2, SPLIT, workers=workers))
    s0.say(Kind.NOTICE, TWO)
    s1.await_frames(Kind.NOTICE, number=TWO)
    play.make_ready(0, 1)
    for server, blocks in play.owned():
        assert server.await_push(blocks, TWO).keys() == set(blocks)
        assert slices(server, TWO) == {(0, 0, 0, 0, 4 if len(workers) == 2 else 8)}
        server.answer(1, blocks, TWO)
    running.result()
    assert play.holds(1)
    assert len(play.yielded) == 4 - len(workers)  # the rehearsal, the step, and where others share it once more


def test_after_an_error_nothing_counts_that_was_staged(play):
    play.fails = "before"
    running = play.run()
    play.make_ready(0, 1, 2)
    for server, blocks in play.owned():
        assert server.await_push(blocks, ONE) == {block: filled(block, 2) for block in blocks}
        server.answer(1, blocks, ONE)
    running.result()
    assert [sorted(blocks) for blocks in play.pushes(ONE)] == [S0, S1]


def test_after_an_error_in_the_middle_everything_is_sent_anew(play):
    """What was sent of the first attempt may still be in use: its memory stays as it is."""
    play.fails = "in the middle"
    running = play.run()
    play.make_ready(0, 1, 2)
    for server, ahead, blocks in zip(play.servers.values(), ([4], [5, 2, 3]), ([4, 0, 1], [5, 2, 3]), strict=True):
        frames = server.await_frames(Kind.PUSH, len(ahead) + len(blocks))
        assert [block for item in frames for block in members(item.frame.runs)] == [*ahead, *blocks]
        assert [item.data for item in frames[: len(ahead)]] == [filled(block, 7) for block in ahead]
        assert [item.data for item in frames[len(ahead) :]] == [filled(block, 2) for block in blocks]
        server.answer(1, blocks, ONE)
    running.result()
    assert play.holds(1)


def test_one_portion_waits_for_all_as_ever(play, monkeypatch):
    monkeypatch.setattr("elastic_ps.worker.script.early_sends.PORTION_BYTES", MODEL.slab_bytes)
    running = play.run()
    play.make_ready(1, 2)
    assert play.pushes(ONE) == [[], []]
    play.make_ready(0)
    for server, blocks in play.owned():
        server.await_push(blocks, ONE)
        server.answer(1, blocks, ONE)
    running.result()
