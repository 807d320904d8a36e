"""A script's loop over the elastic sampler, against played servers: what is yielded, pushed and written."""

import numpy as np
import pytest

from elastic_ps.core.compression import Compression
from elastic_ps.core.data_order import permutation
from elastic_ps.transport.frame_kinds import Kind
from tests.elastic_ps.worker.job_play import KEYS, JobPlay, filled, slices
from tests.elastic_ps.worker.played_server import S0, S1, SPLIT
from tests.elastic_ps.worker.worker_harness import ONE, TWO


@pytest.fixture
def play(scripted):
    return scripted


@pytest.fixture
def slow(monkeypatch):
    """A sender waits until all that it sent before has been read."""
    made = JobPlay(monkeypatch, capacity=1)
    yield made
    made.close()


def test_an_epoch_from_rehearsal_to_end(play):
    running = play.run()
    order = permutation(0, 0, 16).tolist()
    for version in (0, 1):
        for server, blocks in play.owned():
            server.wait(lambda server=server: len(server.of(Kind.PUSH)) == 3)
            assert server.pushed(ONE) == {block: filled(block, version + 2) for block in blocks}
            assert slices(server, ONE) == {(0, version, 0, version * 8, version * 8 + 4)}
            server.received.clear()
            server.answer(version + 1, blocks, ONE)
    running.result()
    assert play.yielded == [(0, order[:4]), (0, order[:4]), (1, order[8:12])]
    assert play.holds(2)
    for index, out in enumerate(play.outs):
        np.testing.assert_array_equal(out.values, play.node.inbox.tensor(index))


def test_a_step_that_is_done_again_leaves_the_gradients_on_their_way_as_they_were(slow):
    """A frame that waits in a slow server's queue must not be filled with the gradients of the new slices."""
    s0, s1 = slow.servers.values()
    running = slow.run(deaf=["s1"])
    s0.await_push(S0, ONE)
    slow.prepare(slow.configuration(2, SPLIT, workers=("w0",)))
    s0.say(Kind.NOTICE, TWO)
    assert s0.await_push(S0, TWO) == {block: filled(block, 3) for block in S0}
    s1.reading.set()
    assert s1.await_push(S1, TWO) == {block: filled(block, 3) for block in S1}
    assert s1.await_push(S1, ONE) == {block: filled(block, 2) for block in S1}
    assert slices(s1, ONE) == {(0, 0, 0, 0, 4)}
    assert slices(s1, TWO) == {(0, 0, 0, 0, 8)}
    for version in (1, 2):
        for server, blocks in slow.owned():
            server.answer(version, blocks, TWO)
    running.result()
    assert [step for step, _ in slow.yielded] == [0, 0, 0, 1]
    assert slow.holds(2)


def test_a_worker_without_samples_takes_part_and_its_script_sees_nothing(play):
    play.samples = 9
    running = play.run(workers=("w1", "w0"))
    for version in (0, 1):
        for server, blocks in play.owned():
            server.await_frames(Kind.PUSH)
            if version == 1:
                (item,) = server.of(Kind.PUSH)
                assert item.data == b""
                assert item.frame.samples == 0
                assert item.frame.meta.empty is True
                assert [
                    number for first, count in item.frame.meta.absent for number in range(first, first + count)
                ] == blocks
            else:
                server.await_push(blocks, ONE)
            server.received.clear()
            server.answer(version + 1, blocks, ONE)
    running.result()
    assert [step for step, _ in play.yielded] == [0, 0]
    np.testing.assert_array_equal(play.outs[0].values, play.node.inbox.tensor(0))
    assert play.holds(2)


def test_a_step_of_two_exchanges_is_done_again_from_the_one_that_was_open(play):
    play.exchanges = [KEYS[:2], KEYS[2:]]
    running = play.run()
    s0, s1 = play.servers.values()
    s0.await_push([0, 1], ONE)
    s1.await_push([2, 3], ONE)
    for server, blocks in play.owned():
        server.answer(1, blocks, ONE)
    s0.wait(lambda: 4 in s0.pushed(ONE))
    assert {tuple(item.frame.meta.slice) for item in s0.of(Kind.PUSH) if item.frame.version == 1} == {(0, 0, 1, 0, 4)}
    play.prepare(play.configuration(2, SPLIT, workers=("w0",)))
    s1.say(Kind.NOTICE, TWO)
    assert s0.await_push([4], TWO) == {4: filled(4, 3)}
    assert s1.await_push([5], TWO) == {5: filled(5, 3)}
    assert slices(s0, TWO) == {(0, 0, 1, 0, 8)}
    assert {item.frame.version for item in s0.of(Kind.PUSH, TWO)} == {1}
    for version in (2, 3, 4):
        for server, blocks in play.owned():
            server.answer(version, blocks, TWO)
    running.result()
    assert [step for step, _ in play.yielded] == [0, 0, 0, 1]
    assert play.holds(4)
    written = [out.values[0] for out in play.outs]  # when its exchange was complete, each key got its value
    assert written == [3000, 3002, 4004]


@pytest.mark.parametrize(
    ("compression", "sent"), [(Compression("2bit", threshold=8.0), 0), (Compression("topk", ratio=1 / 32), 6)]
)
def test_what_was_exchanged_before_a_step_is_done_again_leaves_nothing_out_twice(play, compression, sent):
    """The first exchange left out 2; pushed again it is 3, which goes nowhere; of the next step's 4 travels 2 + 4."""
    play.exchanges = [KEYS[:2], KEYS[2:]]
    play.compression = compression
    running = play.run()
    s0, s1 = play.servers.values()
    for server, blocks in play.owned():
        server.await_pushes(0, 2)
        server.answer(1, blocks, ONE)
    s0.await_pushes(1, 1)
    play.prepare(play.configuration(2, SPLIT, workers=("w0",)))
    s1.say(Kind.NOTICE, TWO)
    s0.await_frames(Kind.PUSH, 1, TWO)
    for server, blocks in play.owned():
        server.answer(2, blocks, TWO)
    pushed = np.zeros((2, 16), np.float32)
    for item in s0.await_pushes(2, 2):
        ((block, _),) = item.frame.meta.runs
        compression.decode(np.frombuffer(item.data, np.uint8), pushed[block])
    assert pushed.max() == sent
    for version in (3, 4):
        for server, blocks in play.owned():
            server.answer(version, blocks, TWO)
    running.result()
    assert [step for step, _ in play.yielded] == [0, 0, 0, 1]


def test_static_data_stays_divided_as_it_was_when_a_worker_has_died(play):
    play.begin()
    assert play.job.num_workers == 2
    alone = play.configuration(2, (), ["w0"])
    play.prepare(alone, dead=["w1"])
    play.adopt(alone)
    assert play.job.num_workers == 2
    play.job.rehearse(play.sampler().spec)
    assert play.job.num_workers == 1
