"""A worker's exchange with its servers (protocol, invariants 5 and 6), over connections whose faults are scripted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError, PeerLost, ProtocolError
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.testing.frame_faults import FaultAction, FrameFault
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import ValueMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.worker.wire.push_exchange import Exchange
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import ALL, BLOCK_BYTES, MODEL, S0, S1, SPLIT, TENSORS
from tests.elastic_ps.worker.worker_harness import ONE, TWO, Aside


def link_to(server, check_open=lambda: None):
    """A connection on which tensors travel."""
    connection = SimpleNamespace(image_at=lambda _places: None)
    return SimpleNamespace(peer=server, connection=connection, check_open=check_open)


def test_each_worker_says_that_a_step_is_skipped_whose_gradients_overflow(play):
    """The chief's values alone travel, and it may have no GradScaler: it is on a CPU."""
    play.start(SPLIT)
    running = play.exchange(replace(play.push(), skip_overflow=True))
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.await_push(blocks, ONE)
        assert {item.frame.meta.skip_overflow for item in server.of(Kind.PUSH)} == {True}
        server.answer(1, blocks, ONE)
    play.check_completes(running, 1)


def test_a_step_goes_to_each_owner_and_is_installed_when_all_have_answered(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    for server, blocks in ((s0, S0), (s1, S1)):
        assert server.await_push(blocks, ONE) == {block: play.gradient(block) for block in blocks}
        for item in server.of(Kind.PUSH):
            assert (item.frame.version, item.frame.samples) == (0, 4)
            assert item.frame.meta.slice == (0, 0, 0, 0, 4)
            assert item.frame.meta.hyper is None
    s0.answer(1, S0, ONE)
    play.await_missing(1, S1)
    assert not running.ended
    assert play.node.version == 0
    s1.answer(1, S1, ONE)
    play.check_completes(running, 1)


def test_rows_go_to_their_owners_and_only_they_come_back(play):
    """Tensor 0 is two blocks of s0, tensor 1 one of each server, tensor 2 dense."""
    split = [0, 0, 0, 1, 1, 1]
    play.start(split)
    s0, s1 = play.servers.values()
    numbers = {0: [2, 15, 20], 1: [30]}
    for tensor, rows in numbers.items():
        play.rows[tensor] = Rows(np.array(rows), np.arange(len(rows), dtype=np.float32)[:, None] + 10 * tensor)
    running = play.exchange()
    sparse = {0: [((0, 2), (3,)), ((2, 1), (0,))], 1: [((3, 1), (1,))]}
    for number, server in enumerate((s0, s1)):
        server.await_frames(Kind.PUSH, 2)
        frames = [item for item in server.of(Kind.PUSH) if item.frame.meta.rows is not None]
        assert [(item.frame.meta.runs[0], item.frame.meta.rows) for item in frames] == sparse[number]
        assert b"".join(item.data for item in frames) == b"".join(
            np.array(part[0]).tobytes() + np.array(part[1], dtype=np.float32).tobytes()
            for part in ([([2, 15, 20], [0, 1, 2])], [([30], [10])])[number]
        )
    before = [play.node.inbox.tensor(index).copy() for index in range(2)]
    s0.send_rows(1, [[0, 2], [2, 1]], [([15, 20], [7, 8]), ([], [])], ONE)
    s1.send_rows(1, [[3, 1]], [([30], [9])], ONE)
    s1.answer(1, [4, 5], ONE)
    assert running.result() is True
    before[0][[15, 20]], before[1][30] = (7, 8), 9
    assert [play.node.inbox.tensor(index).tobytes() for index in range(2)] == [array.tobytes() for array in before]


def test_rows_of_another_version_than_the_next_are_a_protocol_error(play):
    play.start(SPLIT)
    server = next(iter(play.servers.values()))
    frame = Frame(ValueMeta(runs=[[0, 1]], rows=[0]), ONE, 2)
    with pytest.raises(ProtocolError, match="rows of version 2"):
        play.node.buffers(link_to(server.name), frame)


def test_rows_that_come_when_another_owner_has_given_the_whole_change_nothing(play):
    """The path to the old owner is slow, and its blocks are another's since."""
    play.start(SPLIT)
    frame = Frame(ValueMeta(runs=[[0, 2]], rows=[1]), ONE, 1, payload_bytes=12)
    (part,) = play.node.buffers(link_to("s0"), frame)
    whole = [(0, len(ALL))]
    play.node.inbox.buffers(1, whole)[0][:] = 1
    play.node.inbox.arrived(1, whole)
    assert play.node.install_next()
    part[:] = 0
    play.node.arrived(link_to("s0"), frame)
    assert set(play.node.inbox.tensor(0).view(np.uint8)) == {1}


def test_the_chief_alone_sends_hyperparameters(play):
    play.start(SPLIT, workers=("w0",))
    running = play.exchange(play.push(hyper=Hyper(lr=0.5)))
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        assert server.await_frames(Kind.PUSH)[0].frame.meta.hyper == Hyper(lr=0.5)
        server.answer(1, blocks, ONE)
    running.result()


def test_hyperparameters_of_a_worker_that_is_not_the_chief_stay_at_home(play):
    play.start(SPLIT, workers=("w1", "w0"))
    running = play.exchange(play.push(hyper=Hyper(lr=0.5)))
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        assert server.await_frames(Kind.PUSH)[0].frame.meta.hyper is None
        server.answer(1, blocks, ONE)
    running.result()


@pytest.mark.parametrize("sent_early", [False, True])
def test_who_becomes_the_chief_in_the_middle_of_an_exchange_sends_hyperparameters(play, sent_early):
    """Its script draws its own batches, so that the step is not made again. Servers that have none would refuse it."""
    play.start(SPLIT, workers=("w1", "w0"))
    s0, s1 = play.servers.values()
    asked = []

    def late_hyper():
        assert not asked
        asked.append(play.node.is_chief)
        return Hyper(lr=0.5)

    push = replace(play.push(), roster=None, late_hyper=late_hyper)
    exchange = Exchange(play.node)
    if sent_early:
        exchange.send_tensors(replace(push, present=frozenset([0])))
    running = Aside(exchange.run, push, True)
    s0.await_push(S0, ONE)
    s1.await_push(S1, ONE)
    alone = play.configuration(2, SPLIT, workers=("w0",))
    play.prepare(alone, dead=["w1"])
    play.adopt(alone)
    for server, blocks in ((s0, S0), (s1, S1)):
        server.await_push(blocks, TWO)
        assert {item.frame.meta.hyper for item in server.of(Kind.PUSH, TWO)} == {Hyper(lr=0.5)}
        server.answer(1, blocks, TWO)
    play.check_completes(running, 1)
    assert asked == [True]


@pytest.mark.parametrize("told", ["extend", "welcome"])
def test_the_chief_does_not_wait_for_what_it_should_have_initialized(play, told):
    """Another worker has, and died of it perhaps: this one is told before it waits for an exchange without end.

    An Extend that is lost with a stream of directives is in the Welcome that begins the next one.
    """
    play.start(SPLIT)
    tensors, assignment = [*TENSORS, Tensor(0, "i:9", (4,), "float32")], [*SPLIT, 0]
    if told == "extend":
        play.extend(assignment, tensors)
    else:
        play.welcome(play.node.configuration.extended(assignment), tensors)
    with pytest.raises(ConfigurationError, match=r"key 9: another worker .* \(rank 0\), whose values count, has not"):
        play.exchange().result()


def test_a_step_that_may_be_made_waits_for_no_key_of_the_next_one(play):
    """The others are there by now, and have defined it; this chief comes to that. Found by the simulated world."""
    play.start(SPLIT)
    play.extend([*SPLIT, 0], [*TENSORS, Tensor(0, "i:9", (4,), "float32")])
    running = play.exchange(replace(play.push(), may_be_made=True))
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.await_push(blocks, ONE)
        server.answer(1, blocks, ONE)
    play.check_completes(running, 1)
    assert not play.node.inbox.holds(len(TENSORS)), "its script asks for it"


def test_an_extend_of_a_configuration_that_was_left_changes_nothing(play):
    """It had been sent before the switch, of which servers have told since."""
    play.start(SPLIT)
    before = play.node.configuration
    play.extend([*SPLIT, 0], [*TENSORS, Tensor(0, "i:9", (4,), "float32")], before.id._replace(number=0))
    assert play.node.configuration == before


def test_tensors_that_are_not_pushed_are_named_as_absent(play):
    play.start(SPLIT)
    running = play.exchange(play.push(present=[2]))
    s0, s1 = play.servers.values()
    assert s0.await_push([4], ONE).keys() == {4}
    assert [item.frame.meta.absent for item in s0.of(Kind.PUSH)] == [((0, 2),)]
    assert s1.await_push([5], ONE).keys() == {5}
    assert [item.frame.meta.absent for item in s1.of(Kind.PUSH)] == [((2, 2),)]
    s0.answer(1, S0, ONE)
    s1.answer(1, S1, ONE)
    assert running.result() is True


def test_replies_in_any_order_and_twice(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    faults = (
        FrameFault(FaultAction.REVERSE, Kind.VALUE, sender="s0", times=3),
        FrameFault(FaultAction.DUPLICATE, Kind.VALUE, sender="s1", times=3),
    )
    with play.network.faults(*faults):
        running = play.exchange()
        s0.await_push(S0, ONE)
        s0.answer(1, S0, ONE, frames=3)
        s1.answer(1, S1, ONE, frames=3)
        play.check_completes(running, 1)
    running = play.exchange()
    s0.answer(2, S0, ONE)
    s1.answer(1, S1, ONE)  # old news
    s1.answer(2, S1, ONE)
    play.check_completes(running, 2)


def test_a_late_chunk_is_waited_for_and_the_next_versions_chunk_kept(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    hold = FrameFault(FaultAction.HOLD, Kind.VALUE, sender="s0", version=1, skip=2)
    with play.network.faults(hold):
        running = play.exchange()
        s0.answer(1, S0, ONE, frames=3)
        s1.answer(1, S1, ONE)
        s1.answer(2, S1, ONE)  # to a shadow it would be sent so
        play.await_missing(1, S0[2:])
        play.await_missing(2, S0)
        assert not running.ended
        hold.release()
        play.check_completes(running, 1)
    running = play.exchange()
    s0.answer(2, S0, ONE)
    play.check_completes(running, 2)


def test_a_dead_servers_replies_are_forgotten_and_its_blocks_asked_of_their_new_owner(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    s1.await_push(S1, ONE)
    s0.answer(1, S0[:2], ONE)
    s1.answer(1, S1[:1], ONE)
    play.await_missing(1, [3, 4, 5])
    survivors = play.configuration(2, [0] * 6, servers=("s1",))
    play.prepare(survivors, dead=["s0"])
    play.await_missing(1, [0, 1, 3, 4, 5])
    assert not running.ended
    play.adopt(survivors)
    s1.await_push([0, 1, 3, 4, 5], TWO)
    s1.answer(1, ALL, TWO)
    play.check_completes(running, 1)
    assert len(s0.connections) == 1  # nobody has tried to connect to it again


def test_a_reply_under_way_when_its_server_dies_does_not_count(play):
    play.start(SPLIT)
    frame = Frame(ValueMeta(runs=[[0, 2]]), ONE, 1, payload_bytes=2 * BLOCK_BYTES)
    play.node.buffers(link_to("s0"), frame)
    play.prepare(play.configuration(2, [0] * 6, servers=("s1",)), dead=["s0"])
    play.node.arrived(link_to("s0"), frame)
    assert play.missing(1) == ALL


def test_a_reply_by_a_connection_that_has_closed_is_not_taken_for_one_by_the_next(play):
    play.start(SPLIT)
    old, new = (Frame(ValueMeta(runs=[[block, 1]]), ONE, 1, payload_bytes=BLOCK_BYTES) for block in (0, 1))
    closed = []

    def check_open():
        if closed:
            raise PeerLost("s0", "closed")

    play.node.buffers(link_to("s0", check_open), old)
    closed.append(True)
    play.node.buffers(link_to("s0"), new)
    with pytest.raises(PeerLost):
        play.node.arrived(link_to("s0", check_open), old)
    with pytest.raises(PeerLost):
        play.node.buffers(link_to("s0", check_open), old)
    play.node.arrived(link_to("s0"), new)
    assert play.missing(1) == [0, *ALL[2:]]


def test_a_reply_that_breaks_off_is_asked_for_again_by_a_push_of_what_is_missing(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    with play.network.faults(FrameFault(FaultAction.CUT, Kind.VALUE, sender="s0", skip=1)):
        running = play.exchange()
        s0.await_push(S0, ONE)
        s1.answer(1, S1, ONE)
        s0.answer(1, S0[:1], ONE)
        s0.received.clear()
        s0.answer(1, S0[1:], ONE)
        play.await_apart("s0")
    s0.await_push(S0[1:], ONE)
    s0.answer(1, S0[1:], ONE)
    play.check_completes(running, 1)


def test_a_push_that_breaks_off_is_sent_again(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    with play.network.faults(FrameFault(FaultAction.CUT, Kind.PUSH, sender="w0", receiver="s0")):
        running = play.exchange()
        s0.await_connections(2)
    s1.answer(1, S1, ONE)
    assert s0.await_push(S0, ONE) == {block: play.gradient(block) for block in S0}
    s0.answer(1, S0, ONE)
    play.check_completes(running, 1)
    play.await_apart("s0")


def test_a_server_that_is_away_for_a_while_is_found_again(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    s0.stop_listening()
    s0.connections[-1].close()
    play.await_apart("s0")
    running = play.exchange()
    s1.await_push(S1, ONE)
    s1.answer(1, S1, ONE)
    s0.listen_again()
    s0.await_push(S0, ONE)
    s0.answer(1, S0, ONE)
    play.check_completes(running, 1)


def test_a_mismatch_ends_the_worker_with_what_the_server_says(play):
    play.start(SPLIT)
    s0 = play.servers["s0"]
    running = play.exchange()
    s0.await_push(S0, ONE)
    s0.say(Kind.REFUSED, ONE, reason="mismatch", detail="key 0: pushed by w0, not by w1")
    with pytest.raises(ConfigurationError, match="s0 refuses: key 0: pushed by w0, not by w1"):
        running.result()


def test_a_reply_of_a_wrong_length_is_not_taken(play):
    play.start(SPLIT)
    s0 = play.servers["s0"]
    running = play.exchange()
    s0.await_push(S0, ONE)
    s0.connections[-1].send(Frame(ValueMeta(runs=[[0, 2]]), ONE, 1), [bytes(BLOCK_BYTES)])
    play.await_apart("s0")
    play.await_missing(1, ALL)
    assert not running.ended


def test_new_tensors_need_not_wait_for_a_server_that_was_left_in_the_midst_of_a_reply(play):
    play.start(SPLIT)
    frame = Frame(ValueMeta(runs=[[0, 2]]), ONE, 1, payload_bytes=2 * BLOCK_BYTES)
    play.node.buffers(link_to("s0"), frame)  # and then nothing more comes
    moved = play.configuration(2, [0] * 6, servers=("s1",))
    play.prepare(moved)
    play.adopt(moved)
    play.direct(committed=pb.Committed(configuration=pb.ConfigId(term=1, number=2)))
    grown = (*MODEL.tensors, Tensor(0, "i:9", (4,), "float32"))
    Aside(play.extend, [0] * 7, grown).result()
    assert play.session.await_answer(pb.EXTENDED, TWO).growth == len(grown), "which of two Extends it answers"
    assert play.node.inbox.model.tensors == grown
