"""How a worker comes to the job's parameters, whatever breaks on the way: first values, a restored job."""

import numpy as np
import pytest

from elastic_ps.control import codec
from elastic_ps.core.errors import ConfigurationError, JobEnded
from elastic_ps.testing.frame_faults import FaultAction, FrameFault
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.wire.parameters import FirstValues, declare, enter
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import BLOCK_BYTES, MODEL, S0, S1, SPLIT, TENSORS, value
from tests.elastic_ps.worker.worker_harness import ONE, TWO, Aside

MODEL_KEYS = [tensor.key for tensor in TENSORS]


def first_value(key):
    return np.concatenate([value(0, block) for block in MODEL.blocks_of[MODEL.index[0, key]]])


def declaring(play, workers=("w0", "w1"), keys=MODEL_KEYS):
    """A job at its start whose script has initialized `keys`, and where the model has been declared."""
    play.begin(workers)
    tensors = [codec.tensor_to_pb(tensor) for tensor in TENSORS]
    play.session.declared = lambda _request: pb.DeclareReply(tensors=tensors, assignment=SPLIT, warnings=["lr differs"])
    return Aside(declare, play.node, pb.DeclareRequest(), FirstValues(set(keys), first_value))


def given(server):
    """The first values that a server was given: by block."""
    found = {}
    for item in server.of(Kind.INIT):
        ((first, count),) = item.frame.runs
        parts = [item.data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES] for number in range(count)]
        found.update(zip(range(first, first + count), parts, strict=True))
    return found


def asked(server):
    return [
        block
        for item in server.of(Kind.PULL)
        for first, count in item.frame.runs
        for block in range(first, first + count)
    ]


def test_the_chief_gives_first_values_and_takes_what_the_servers_then_hold(play):
    running = declaring(play)
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.await_frames(Kind.PULL)
        assert given(server) == {block: value(0, block).tobytes() for block in blocks}
        assert asked(server) == blocks
        assert not running.ended
        server.answer(0, blocks, ONE)
    assert running.result() == ["lr differs"]
    assert play.holds(0)


def test_another_worker_only_takes(play):
    running = declaring(play, workers=("w1", "w0"))
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.await_frames(Kind.PULL)
        server.answer(0, blocks, ONE)
    running.result()
    assert not any(server.of(Kind.INIT) for server in play.servers.values())


def test_a_worker_that_is_ahead_does_not_hold_up_the_chief(play):
    """Its next key is in the tables already; the chief comes to it in its own time."""
    running = declaring(play, keys=MODEL_KEYS[:1])
    s0, s1 = play.servers.values()
    s0.await_frames(Kind.PULL)
    assert given(s0).keys() == {0, 1}
    assert asked(s0) == [0, 1]
    s0.answer(0, [0, 1], ONE)
    running.result()
    assert not s1.received[1:]  # than the NOTICE


@pytest.mark.parametrize("workers", [("w0", "w1"), ("w1", "w0")])
def test_other_keys_than_another_workers_are_refused(play, workers):
    running = declaring(play, workers, keys=MODEL_KEYS[2:])
    rank = workers.index("w0")
    with pytest.raises(
        ConfigurationError, match=rf"key 0: another .* in key store 0 where this one \(rank {rank}\) .* 2;"
    ):
        running.result()


def test_a_restored_job_takes_a_new_key_that_comes_first(play):
    play.node.inherited = True
    running = declaring(play, ("w1", "w0"), keys=MODEL_KEYS[2:])
    for server, block in zip(play.servers.values(), (4, 5), strict=True):
        server.await_frames(Kind.PULL)
        server.answer(0, [block], ONE)
    assert running.result() == ["lr differs"]
    assert not any(given(server) for server in play.servers.values())


def test_a_restored_job_refuses_another_model(play):
    """Its tensors would begin anew, and those of the checkpoint lie idle. Nothing is declared."""
    play.begin(("w0", "w1"))
    play.node.inbox.grow(MODEL)
    play.node.inherited = True
    model = FirstValues({*MODEL_KEYS[1:], "s:net.weight"}, first_value, whole=True)
    running = Aside(declare, play.node, pb.DeclareRequest(), model)
    with pytest.raises(ConfigurationError, match="the job has 0, which this script's model lacks: give all workers"):
        running.result()


@pytest.mark.parametrize(("kind", "sender"), [(Kind.INIT, "w0"), (Kind.PULL, "w0"), (Kind.VALUE, "s0")])
def test_a_connection_that_breaks_while_first_values_travel(play, kind, sender):
    s0, s1 = play.servers.values()
    with play.network.faults(
        FrameFault(FaultAction.CUT, kind, sender=sender, receiver="s0" if sender == "w0" else "w0")
    ):
        running = declaring(play)
        if kind is Kind.VALUE:
            s0.await_frames(Kind.PULL)
            s0.received.clear()
            s0.answer(0, S0, ONE)
        play.await_apart("s0")
    s0.await_frames(Kind.PULL)
    assert given(s0).keys() == set(S0)
    assert asked(s0)[-len(S0) :] == S0
    s0.answer(0, S0, ONE)
    s1.answer(0, S1, ONE)
    running.result()
    assert play.holds(0)


def test_who_becomes_chief_while_first_values_are_awaited_gives_them(play):
    running = declaring(play, workers=("w1", "w0"))
    s0, s1 = play.servers.values()
    s0.await_frames(Kind.PULL)
    alone = play.configuration(2, SPLIT, workers=("w0",))
    play.prepare(alone)
    play.adopt(alone)
    for server, blocks in ((s0, S0), (s1, S1)):
        server.await_frames(Kind.PULL, number=TWO)
        assert given(server).keys() == set(blocks)
        server.answer(0, blocks, TWO)
    running.result()


def test_a_worker_that_leaves_while_it_declares_ends_in_order(play):
    """The plan by which it leaves does not wait for its step, as its script waits for the declaration."""

    def declared(_request):
        alone = play.configuration(2, SPLIT, workers=("w1",))
        play.prepare(alone)
        play.adopt(alone)
        return pb.DeclareReply(tensors=[codec.tensor_to_pb(tensor) for tensor in TENSORS], assignment=SPLIT)

    play.begin(("w0", "w1"))
    play.session.declared = declared
    running = Aside(declare, play.node, pb.DeclareRequest(), FirstValues(set(MODEL_KEYS), first_value))
    with pytest.raises(JobEnded, match="drained"):
        running.result()


def test_a_restored_job_begins_at_its_checkpoints_version(play):
    play.direct(welcome=pb.Welcome(tensors=[codec.tensor_to_pb(tensor) for tensor in TENSORS]))
    configuration = play.configuration(1, SPLIT)
    play.prepare(configuration)
    play.adopt(configuration)
    s0, s1 = play.servers.values()
    with play.network.faults(FrameFault(FaultAction.CUT, Kind.VALUE, sender="s1")):
        running = Aside(enter, play.node)
        s0.await_frames(Kind.PULL)
        s1.await_frames(Kind.PULL)
        s0.answer(40, S0, ONE)
        s1.answer(40, S1, ONE)
        s1.await_connections(2)
    s1.await_frames(Kind.PULL, 2)
    s1.answer(40, S1, ONE)
    running.result()
    assert play.holds(40)
