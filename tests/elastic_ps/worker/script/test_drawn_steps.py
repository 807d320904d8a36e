"""Jobs that are `async` or `ssp`: batches are drawn, and each exchange is this worker's alone."""

import numpy as np
import pytest

from elastic_ps.control import codec
from elastic_ps.core.data_order import DataSpec, permutation
from elastic_ps.core.errors import ConfigurationError, Refused
from elastic_ps.core.model import Model, Tensor, runs
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.data.sampler import Sampler
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.wire.parameters import enter
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.job_play import KEYS, JobPlay, filled, slices
from tests.elastic_ps.worker.played_server import ALL, BLOCK_BYTES, S0, S1, SPLIT, TENSORS
from tests.elastic_ps.worker.worker_harness import ONE, THREE, TWO, Aside

ORDER = permutation(0, 0, 16).tolist()
OVER = pb.DrawReply(epoch=1, over=True)


def given(step, origin="w0", batch=0, epoch=0):
    return pb.DrawReply(epoch=epoch, step=step, origin=origin, batch=batch)


class DrawnPlay(JobPlay):
    """Steps of 4 out of 16 samples; the optimizer's learning rate is the number of the update."""

    def __init__(self, monkeypatch, **more):
        super().__init__(monkeypatch, **more)
        self.hyper = lambda number: Hyper(lr=float(number))

    def sampler(self):
        return Sampler(self.samples, batch=4, consistency="ssp", staleness=2)

    def running(self, *draws, workers=("w1", "w0")):
        """The script in its first step; this worker is not the chief."""
        self.draw(pb.DrawReply(epoch=0), *draws)
        return self.run(workers=workers)

    def draw(self, *replies):
        for reply in replies:
            self.session.draws.put(reply)

    def refresh(self, version, number=ONE, held=ALL):
        """The end of an epoch: every worker takes the values of the moment, of the blocks that have any."""
        for server, blocks in self.owned():
            server.wait(lambda server=server: version in [item.frame.version for item in server.of(Kind.PULL, number)])
            server.answer(version, [block for block in blocks if block in held], number)

    def join(self, listed=TENSORS):
        """Up to the rehearsal: w0 joins a job in which w1 trains, and that has these tensors."""
        data = DataSpec(True, 16, 4, exchanges=1, consistency="ssp", staleness=2)
        tensors = [codec.tensor_to_pb(tensor) for tensor in listed]
        split = SPLIT[: len(Model(listed, BLOCK_BYTES).blocks)]
        configuration = codec.configuration_to_pb(self.configuration(1, split, workers=("w1",)))
        self.direct(welcome=pb.Welcome(configuration=configuration, tensors=tensors, data=codec.data_to_pb(data)))
        self.joined = self.configuration(2, split, workers=("w1", "w0"))
        self.prepare(self.joined)


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
        tensors.extend(tensor for tensor in request.tensors)
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
