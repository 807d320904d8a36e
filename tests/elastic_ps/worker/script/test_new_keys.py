"""Keys that scripts of `async` and `ssp` jobs define in mid job."""

import numpy as np
import pytest

from elastic_ps.core.model import runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.wire.parameters import enter
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.job_play import KEYS
from tests.elastic_ps.worker.played_server import SPLIT, TENSORS
from tests.elastic_ps.worker.script.drawn_play import OVER, DrawnPlay, given
from tests.elastic_ps.worker.worker_harness import ONE, THREE, TWO, Aside


@pytest.fixture
def play(monkeypatch):
    made = DrawnPlay(monkeypatch)
    yield made
    made.close()


def test_a_key_of_mid_job_begins_with_the_value_of_whose_batch_defines_it(play):
    """The chief may have no batch any more: it waits for this worker's, which waited for the chief's value."""

    def script():
        store = play.job.open_store()
        store.set_optimizer(OptimizerSpec("sgd"), play.hyper)
        defined = []
        for _ in play.sampler():
            keys, defined = (KEYS[:2] if not defined else KEYS[2:]), KEYS
            ones = [NumpyArray(np.ones(TENSORS[0].shape, np.float32)) for _ in keys]
            store.init(keys, ones)
            store.push(keys, [[one] for one in ones])

    def declared(request):
        tensors.extend(request.tensors)
        return pb.DeclareReply(tensors=tensors, assignment=SPLIT[: 2 * len(tensors)])

    tensors, play.script, play.session.declared = [], script, declared
    play.draw(pb.DrawReply(epoch=0), given(0), OVER)
    play.begin(workers=("w1", "w0"))
    running = Aside(play.script)
    play.refresh(0, held=range(4))
    for server, blocks in play.owned():
        new = [block for block in blocks if block >= 4]
        assert [list(item.frame.runs) for item in server.await_frames(Kind.INIT)] == [list(runs(new))]
        server.answer(0, new, ONE)
    for server, blocks in play.owned():
        server.await_push([block for block in blocks if block >= 4], ONE)
        server.answer(1, blocks, ONE)
    play.refresh(2)
    running.result()
    assert play.holds(2)


def test_a_joiner_gives_the_value_of_a_key_that_it_is_the_first_to_define(play):
    """It ended with a KeyError, as it had dropped its own value and nobody had given another."""
    play.join(TENSORS[:2])
    entering = Aside(enter, play.node)
    for server, blocks in play.owned():
        server.await_frames(Kind.PULL)
        server.answer(0, [block for block in blocks if block < 4], ONE)
    entering.result()
    play.draw(pb.DrawReply(epoch=4), pb.DrawReply(epoch=5, over=True))
    play.epochs = 5
    running = Aside(play.script)
    play.session.await_answer(pb.SYNCED, TWO)
    grown = play.configuration(3, SPLIT, workers=("w1", "w0"))
    play.prepare(grown)
    play.session.await_answer(pb.SYNCED, THREE)
    play.adopt(grown)
    play.refresh(1, THREE, range(4))
    for server, blocks in play.owned():
        new = [block for block in blocks if block >= 4]
        first = server.await_frames(Kind.INIT, number=THREE)
        assert [list(item.frame.runs) for item in first] == [list(runs(new))]
        server.answer(1, new, THREE)
    play.refresh(2, THREE)
    running.result()
    assert play.holds(2)


def test_a_key_of_mid_job_needs_no_chief_where_scripts_draw_their_own_batches(play):
    """The chief's script may have fewer batches, and have ended: this worker waited for its value for ever."""
    tensors = []

    def declared(request):
        tensors.extend(request.tensors)
        return pb.DeclareReply(tensors=tensors, assignment=SPLIT[: 2 * len(tensors)])

    store = play.job.open_store("async")
    store.set_optimizer(OptimizerSpec("sgd"), play.hyper)
    play.begin(workers=("w1", "w0"))
    play.session.declared = declared
    ones = [NumpyArray(np.ones(tensor.shape, np.float32)) for tensor in TENSORS]
    initializing = Aside(store.init, KEYS[:2], ones[:2])
    play.refresh(0, held=range(4))
    initializing.result()
    assert not any(server.of(Kind.INIT) for server in play.servers.values()), "the chief gives those"
    pushing = Aside(store.pushpull, KEYS[:2], [[one] for one in ones[:2]], [[out] for out in play.outs[:2]])
    for server, blocks in play.owned():
        known = [block for block in blocks if block < 4]
        server.await_push(known, ONE)
        server.answer(1, known, ONE)
    pushing.result()
    Aside(store.init, KEYS[2:], ones[2:])
    for server, blocks in play.owned():
        new = [block for block in blocks if block >= 4]
        assert [list(item.frame.runs) for item in server.await_frames(Kind.INIT)] == [list(runs(new))]
