"""Jobs that are `async` or `ssp`: batches are drawn, and each exchange is this worker's alone."""

import numpy as np
import pytest

from elastic_ps.control import codec
from elastic_ps.core.data_order import DataSpec, permutation
from elastic_ps.core.errors import ConfigurationError, Refused
from elastic_ps.core.model import Tensor, runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.wire.parameters import enter
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.job_play import KEYS, filled, slices
from tests.elastic_ps.worker.played_server import S0, S1, SPLIT, TENSORS
from tests.elastic_ps.worker.script.drawn_play import OVER, DrawnPlay, given
from tests.elastic_ps.worker.worker_harness import ONE, THREE, TWO, Aside

ORDER = permutation(0, 0, 16).tolist()


@pytest.fixture
def play(monkeypatch):
    made = DrawnPlay(monkeypatch)
    yield made
    made.close()


@pytest.fixture
def three(monkeypatch):
    made = DrawnPlay(monkeypatch, servers=("s0", "s1", "s2"))
    yield made
    made.close()


def batches(server, number):
    return {tuple(item.frame.meta.batch) for item in server.of(Kind.PUSH, number)}


def test_an_epoch_of_drawn_batches(play):
    play.draw(pb.DrawReply(epoch=0), given(2), given(0, origin="w7", batch=5), OVER)
    running = play.run(workers=("w1", "w0"))
    for version, (step, batch) in enumerate([(2, ("w0", 0)), (0, ("w7", 5))]):
        for server, blocks in play.owned():
            server.wait(lambda server=server: len(server.of(Kind.PUSH)) == 3)
            assert server.pushed(ONE) == {block: filled(block, version + 2) for block in blocks}
            assert slices(server, ONE) == {(0, step, 0, step * 4, step * 4 + 4)}
            assert batches(server, ONE) == {batch}
            assert {(item.frame.version, item.frame.samples) for item in server.of(Kind.PUSH)} == {(version, 4)}
            server.received.clear()
            server.answer(version + 1, blocks, ONE)
    play.refresh(3)
    running.result()
    assert play.yielded == [(0, ORDER[:4]), (2, ORDER[8:12]), (0, ORDER[:4])]
    assert play.session.drawn == [(0, 0, True), (1, 0, False), (2, 0, False), (3, 0, False)]
    assert play.holds(3)
    for index, out in enumerate(play.outs):
        np.testing.assert_array_equal(out.values, play.node.inbox.tensor(index))


def test_every_worker_gives_the_values_of_the_update_after_those_it_has_heard_of(play):
    play.draw(pb.DrawReply(epoch=0), given(0), given(1, batch=1), OVER)
    running = play.run(workers=("w1", "w0"))
    rates = []
    for version, heard in enumerate([(40, 41), (45, 44)]):
        for (server, blocks), updates in zip(play.owned(), heard, strict=True):
            # Those of this version: a worker that connects anew pushes again.
            rates += {item.frame.meta.hyper.lr for item in server.await_pushes(version, 3)}
            server.answer(version + 1, blocks, ONE, updates=updates)
    assert rates == [1, 1, 42, 42]
    play.refresh(3)
    running.result()


def test_a_switch_in_an_exchange_asks_the_new_owners_for_what_lacks_under_the_same_batch(three):
    s0, s1, s2 = three.servers.values()
    three.draw(pb.DrawReply(epoch=0), given(3, batch=6), OVER)
    three.begin(workers=("w1", "w0"))
    running = Aside(three.script)
    for server, blocks in ((s0, S0), (s1, S1)):
        server.await_frames(Kind.PULL)
        server.answer(0, blocks, ONE)
    s0.await_push(S0, ONE)
    s1.await_push(S1, ONE)
    s0.answer(1, S0, ONE)
    three.await_missing(1, S1)
    three.prepare(three.configuration(2, [0, 0, 2, 2, 0, 2], workers=("w0",)))  # w1 has died, s2 has what s1 had
    s0.say(Kind.NOTICE, TWO)
    assert s2.await_push(S1, TWO) == {block: filled(block, 2) for block in S1}
    assert batches(s2, TWO) == batches(s1, ONE) == {("w0", 6)}
    s2.answer(1, S1, TWO)
    for server, blocks in ((s0, S0), (s2, S1)):
        server.await_frames(Kind.PULL, number=TWO)
        server.answer(2, blocks, TWO)
    running.result()
    assert s0.of(Kind.PUSH, TWO) == []
    assert [step for step, _ in three.yielded] == [0, 3]  # no step is done again


def test_a_joiner_pulls_twice_and_follows_nobody(play):
    play.join()
    entering = Aside(enter, play.node)
    for server, blocks in play.owned():
        (pull,) = server.await_frames(Kind.PULL)
        assert pull.frame.version == 0
        assert not server.of(Kind.SUBSCRIBE)  # it would have come before
        server.answer(0, blocks, ONE, updates=9)
    entering.result()
    play.draw(pb.DrawReply(epoch=4), pb.DrawReply(epoch=5, over=True))
    play.epochs = 5
    running = Aside(play.script)
    synced = play.session.await_answer(pb.SYNCED, TWO)
    assert synced.version == 0
    for server in play.servers.values():
        server.received.clear()
    play.adopt(play.joined)
    for server, blocks in play.owned():
        (pull,) = server.await_frames(Kind.PULL, number=TWO)
        assert (pull.frame.version, pull.frame.runs) == (1, list(runs(blocks)))
        server.answer(1, blocks, TWO, updates=12)
    play.session.await_drawn(2)
    assert play.holds(1)
    assert play.node.inbox.updates(0) == 12
    play.refresh(2, TWO)
    running.result()
    assert play.yielded == [(0, ORDER[:4])]  # its rehearsal: the epoch it came into was over by then
    assert play.session.drawn == [(0, 0, True), (1, 4, False)]


def test_a_joiner_waits_for_no_value_that_nobody_has_given(play):
    """The chief had defined a key and died; the next one is this joiner. Found by the simulated world (860429)."""
    play.join()
    entering = Aside(enter, play.node)
    for server, blocks in play.owned():
        server.await_frames(Kind.PULL)
        server.answer(0, blocks, ONE)
    entering.result()
    play.draw(pb.DrawReply(epoch=4), pb.DrawReply(epoch=5, over=True))
    play.epochs = 5
    running = Aside(play.script)
    play.session.await_answer(pb.SYNCED, TWO)
    data = play.node.data
    play.extend([*SPLIT, 0], [*TENSORS, Tensor(0, "i:9", (4,), "float32")], ONE)
    play.node.data = data
    grown = play.configuration(3, [*SPLIT, 0], workers=("w1", "w0"))
    play.prepare(grown)
    play.session.await_answer(pb.SYNCED, THREE)
    play.adopt(grown)
    play.refresh(1, THREE)
    play.refresh(2, THREE)
    running.result()
    assert play.holds(2)
    assert not play.node.inbox.holds(len(TENSORS))


def test_who_waits_for_a_batch_ends_with_what_ends_the_job(play):
    running = play.running(Refused("the job goes back to its checkpoint"))
    play.session.await_drawn(2)
    play.direct(stop=pb.Stop(reason="back to the checkpoint", restart=True))
    with pytest.raises(SystemExit) as ended:
        running.result()
    assert ended.value.code == 75


def test_a_script_that_draws_its_own_batches_counts_them(play):
    store = play.job.open_store("async")
    assert store.mode == "async"
    store.set_optimizer(OptimizerSpec("sgd"), play.hyper)
    play.begin(workers=("w0",))
    declared = []
    answer = play.session.declared
    play.session.declared = lambda request: declared.append(codec.data_from_pb(request.data)) or answer(request)
    ones = [NumpyArray(np.ones(tensor.shape, np.float32)) for tensor in TENSORS]
    initializing = Aside(store.init, KEYS, ones)
    for server, blocks in play.owned():
        server.await_frames(Kind.PULL)
        server.answer(0, blocks, ONE)
    initializing.result()
    assert declared == [DataSpec(consistency="async")]
    for version in range(2):
        store.push(KEYS, [[one] for one in ones])
        pulling = Aside(store.pull, KEYS, [[out] for out in play.outs])
        for server, blocks in play.owned():
            server.await_push(blocks, ONE)
            assert batches(server, ONE) == {("w0", version)}
            assert all(item.frame.meta.slice is None for item in server.of(Kind.PUSH))
            server.received.clear()
            server.answer(version + 1, blocks, ONE)
        pulling.result()
    assert play.holds(2)


# ---- what does not go together


def test_names_and_sampler_must_agree(play):
    play.job.open_store()
    play.job.open_store("async")
    with pytest.raises(ConfigurationError, match=r'the consistency "ssp", but the job.s is "async", as another'):
        play.job.open_store("ssp")
    with pytest.raises(ConfigurationError, match=r'the consistency "async", but the job.s is "ssp", as the sam'):
        play.job.rehearse(play.sampler().spec)


def test_a_name_must_agree_with_the_sampler_that_came_before(play):
    play.job.rehearse(play.sampler().spec)
    assert play.job.open_store().mode == play.job.open_store("ssp").mode == "ssp"
    with pytest.raises(ConfigurationError, match=r'the consistency "sync", but the job.s is "ssp"'):
        play.job.open_store("sync")


def test_a_store_that_is_in_use_stays_sync(play):
    play.begin()
    initializing = Aside(play.job.open_store().init, KEYS, play.outs)
    for server, blocks in play.owned():
        server.await_frames(Kind.PULL)
        server.answer(0, blocks, ONE)
    initializing.result()
    with pytest.raises(ConfigurationError, match=r'the consistency "async", but the job.s is "sync"'):
        play.job.open_store("async")


def test_ssp_needs_a_sampler(play):
    play.begin()
    store = play.job.open_store("ssp")
    with pytest.raises(ConfigurationError, match=r"needs an elastic_ps.Sampler with staleness=s"):
        store.init(KEYS[:1], play.outs[:1])


@pytest.mark.parametrize("name", ["async", "ssp"])
def test_servers_that_update_on_each_push_need_the_optimizer(play, name):
    store = play.job.open_store(name)
    with pytest.raises(ConfigurationError, match=f'"{name}" needs an optimizer on the servers'):
        store.set_local_update()
