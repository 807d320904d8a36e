"""The contract of every transport (`elastic_ps.transport.base`)."""

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId, Role
from elastic_ps.core.errors import PeerLost
from elastic_ps.core.optimizer import Hyper
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import (
    AcceptedMeta,
    FactorMeta,
    FollowedMeta,
    GoodbyeMeta,
    HandoverMeta,
    HelloMeta,
    InitMeta,
    JoinMeta,
    NoticeMeta,
    PingMeta,
    PongMeta,
    PullMeta,
    PushMeta,
    RecordMeta,
    RefusedMeta,
    SnapshotMeta,
    SquaresMeta,
    SubscribeMeta,
    ValueMeta,
)
from elastic_ps.transport.frames import HEADER_BYTES, Frame, encode
from tests.elastic_ps.transport.wiring import TIMEOUT, Aside, join, meet, numbered, take

LARGE = 24 << 20  # more than both sockets' buffers


RUNS = ((0, 3), (9, 1))
EXAMPLES = {
    meta.kind: meta
    for meta in (
        JoinMeta(connection="größe", part=1, of=3),
        HelloMeta(node="w0", role=Role.WORKER, lane="exchange"),
        RefusedMeta(reason=Reason.STALE, detail="größe", configuration=ConfigId(1, 2)),
        InitMeta(runs=RUNS),
        PullMeta(runs=RUNS, states=True, numbers=True, request=3),
        PushMeta(runs=RUNS, absent=((4, 1),), slice=(1, 2, 0, 8, 16), hyper=Hyper(clip_gradient=1.5), batch=("w1", 7)),
        ValueMeta(runs=RUNS, rows=(1, 2), updates=9),
        SquaresMeta(runs=RUNS, squares=(0.5, 2.0, -1.0, 0.1), hyper=Hyper(max_norm=1.5, skip_overflow=True)),
        FactorMeta(factor=0.25),
        SnapshotMeta(runs=((4, 2),), state=("mean",), dtypes=("float32",), counts=(1, 2), applied={"w0": (-1, 4)}),
        RecordMeta(runs=RUNS[:1], rows=(1,), hyper=Hyper(), batch=("w1", 7), slot=1),
        HandoverMeta(runs=RUNS, empty=True),
        FollowedMeta(runs=((0, 3),), slot=1),
        AcceptedMeta(),
        NoticeMeta(),
        GoodbyeMeta(),
        PingMeta(),
        PongMeta(),
        SubscribeMeta(),
    )
}


# ---- frames ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_arrives_as_it_was_sent(line, kind):
    sender, receiver = line
    sent = Frame(EXAMPLES[kind], ConfigId(2**40, 7), 2**50, 2**31)
    sender.send(sent, [np.arange(5, dtype=np.int16)])
    frame, data = take(receiver)
    assert frame == sent
    assert frame.payload_bytes == 10
    assert data == np.arange(5, dtype=np.int16).tobytes()


def test_both_directions(line):
    connected, accepted = line
    connected.send(numbered(1), [b"up"])
    assert take(accepted) == (Frame(ValueMeta(), version=1, payload_bytes=2), b"up")
    accepted.send(numbered(2), [b"down"])
    assert take(connected) == (Frame(ValueMeta(), version=2, payload_bytes=4), b"down")


def test_nothing_but_the_kind(line):
    line[0].send(Frame(SubscribeMeta()))
    assert take(line[1]) == (Frame(SubscribeMeta()), b"")


@pytest.mark.parametrize(
    "payload",
    [
        [],
        [np.zeros(0), b""],
        [np.zeros((3, 0), dtype=np.float32), b"x"],
        [np.array(1.5)],
        [np.arange(12, dtype=np.float16).reshape(3, 4), memoryview(b"abc"), bytearray(b"d")],
        [np.array([True, False])],
    ],
    ids=["none", "empty", "empty in one dimension", "scalar", "several", "booleans"],
)
def test_any_contiguous_buffers(line, payload):
    expected = b"".join(memoryview(part).tobytes() for part in payload)
    line[0].send(numbered(1), payload)
    line[0].send(numbered(2))
    assert take(line[1])[1] == expected
    assert take(line[1])[0].version == 2


def test_a_buffer_with_gaps_is_refused_before_anything_is_sent(line):
    with pytest.raises(TypeError):
        line[0].send(numbered(1), [b"x", np.arange(10)[::2]])
    line[0].send(numbered(2))
    assert take(line[1])[0].version == 2


@pytest.mark.slow
def test_more_buffers_than_a_system_call_takes(line):
    sizes = np.random.default_rng(3).integers(0, 40, size=2500)
    payload = [np.full(size, number % 251, dtype=np.uint8) for number, size in enumerate(sizes)]
    line[0].send(numbered(1), payload)
    frame, data = take(line[1])
    assert frame.payload_bytes == sizes.sum()
    assert data == b"".join(part.tobytes() for part in payload)


def test_a_payload_is_received_into_memory_of_any_cut(line):
    sent = np.arange(1000, dtype=np.float32)
    line[0].send(numbered(1), [sent[:1], sent[1:]])
    assert line[1].receive().payload_bytes == 4000
    parts = [np.empty((7, 10), np.float32), np.empty(0, np.uint8), np.empty(930, np.float32)]
    line[1].receive_into(parts[:2])
    line[1].receive_into(parts[2:])
    np.testing.assert_array_equal(np.concatenate([part.view(np.float32).ravel() for part in parts]), sent)


def test_small_frames_are_sent_as_long_as_there_is_room_and_none_is_lost_then(line):
    content = np.random.default_rng(7).integers(0, 255, size=60_000, dtype=np.uint8)
    last = 1
    while line[0].offer(numbered(last), [content]):
        last += 1
        assert last < 10_000, "sockets whose buffers are never full"
    assert last > 1 or line[0].kind == "memory"
    sending = Aside(line[0].send, numbered(last), [content])  # goes on where `offer` has stopped
    for version in range(1, last + 1):
        frame, data = take(line[1])
        assert (frame.version, data) == (version, content.tobytes())
    sending.result()
    line[0].send(numbered(last + 1))
    assert take(line[1])[0].version == last + 1


def test_of_a_large_frame_nothing_is_sent_at_once(line):
    assert not line[0].offer(numbered(1), [np.zeros(LARGE, dtype=np.uint8)])
    line[0].send(numbered(2))
    assert take(line[1])[0].version == 2


def test_a_broken_connection_is_found_by_who_sends(line):
    line[0].hang_up()
    assert not line[0].offer(numbered(1))
    with pytest.raises(PeerLost):
        line[0].send(numbered(1))


def test_a_large_frame_is_sent_while_it_is_received(line):
    sent = np.random.default_rng(5).integers(0, 255, size=LARGE, dtype=np.uint8)
    sending = Aside(line[0].send, numbered(1), [sent[:3], sent[3 : LARGE // 2], sent[LARGE // 2 :]])
    frame, data = take(line[1])
    sending.result()
    assert frame.payload_bytes == LARGE
    assert data == sent.tobytes()


@pytest.mark.slow
def test_large_meta(line):
    runs = tuple((block, 1) for block in range(0, 400_000, 2))
    sending = Aside(line[0].send, Frame(PullMeta(runs=runs)))
    frame, _ = take(line[1])
    sending.result()
    assert frame.meta.runs == runs


def test_the_payload_may_change_once_send_has_returned(line):
    values = np.ones(1000, dtype=np.uint8)
    line[0].send(numbered(1), [values])
    values[:] = 2
    assert take(line[1])[1] == bytes([1]) * 1000


# ---- order and threads -------------------------------------------------------------------------------------------


def test_frames_arrive_in_the_order_in_which_they_were_sent(line):
    def send() -> None:
        for number in range(300):
            line[0].send(numbered(number), [bytes([number % 256]) * number])

    sending = Aside(send)
    for number in range(300):
        frame, data = take(line[1])
        assert (frame.version, data) == (number, bytes([number % 256]) * number)
    sending.result()


def test_both_ends_send_and_receive_at_once(line):
    def send(end) -> None:
        for number in range(4):
            end.send(numbered(number), [np.full(4 << 20, number, dtype=np.uint8)])

    def receive(end) -> list[tuple[int, bool]]:
        return [(frame.version, set(data) == {frame.version}) for frame, data in (take(end) for _ in range(4))]

    sending = [Aside(send, end) for end in line]
    receiving = [Aside(receive, end) for end in line]
    for aside in receiving:
        assert aside.result() == [(number, True) for number in range(4)]
    for aside in sending:
        aside.result()


@pytest.mark.slow
def test_senders_in_several_threads_do_not_mix_their_frames(line):
    def send(sender: int) -> None:
        for number in range(50):
            line[0].send(Frame(ValueMeta(), version=number, samples=sender), [bytes([sender]) * 3000] * 3)

    sending = [Aside(send, sender) for sender in range(3)]
    arrived: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(150):
        frame, data = take(line[1])
        assert data == bytes([frame.samples]) * 9000
        arrived[frame.samples].append(frame.version)
    assert arrived == {sender: list(range(50)) for sender in range(3)}
    for aside in sending:
        aside.result()


def test_a_frame_that_comes_byte_by_byte(wiring, listener):
    peer, connection = meet(lambda: wiring.raw(listener), listener)
    frame = Frame(PushMeta(runs=((0, 1),)), ConfigId(1, 2), 3, 4, payload_bytes=6)
    receiving = Aside(take, connection)
    for byte in encode(frame) + b"abcdef":
        peer.send(bytes([byte]))
    assert receiving.result() == (frame, b"abcdef")
    connection.close()


# ---- ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closing", [0, 1], ids=["own end", "peer"])
def test_close_ends_a_blocked_receive(line, closing):
    receiving = Aside(line[0].receive)
    receiving.started.wait(TIMEOUT)
    line[closing].close()
    with pytest.raises(PeerLost):
        receiving.result()


@pytest.mark.parametrize("closing", [0, 1], ids=["own end", "peer"])
def test_close_ends_a_receive_in_the_midst_of_a_payload(line, closing):
    line[1].send(numbered(1), [b"only this"])
    assert line[0].receive().payload_bytes == 9
    receiving = Aside(line[0].receive_into, [bytearray(100)])
    receiving.started.wait(TIMEOUT)
    line[closing].close()
    with pytest.raises(PeerLost):
        receiving.result()


@pytest.mark.parametrize("closing", [0, 1], ids=["own end", "peer"])
def test_close_ends_a_blocked_send(line, closing):
    def send() -> None:
        while True:
            line[0].send(numbered(1), [np.zeros(LARGE, dtype=np.uint8)])

    sending = Aside(send)
    line[1].receive()  # it has begun, and cannot end: nobody takes the payload
    line[closing].close()
    with pytest.raises(PeerLost) as raised:
        sending.result()
    assert raised.value.peer == "server"


def test_what_was_sent_before_the_close_still_arrives(line):
    line[0].send(numbered(1), [b"last words"])
    line[0].close()
    assert take(line[1])[1] == b"last words"
    with pytest.raises(PeerLost):
        line[1].receive()


def test_a_closed_end_neither_sends_nor_receives(line):
    line[0].close()
    line[0].close()
    with pytest.raises(PeerLost):
        line[0].send(numbered(1))
    with pytest.raises(PeerLost):
        line[0].receive()


@pytest.mark.slow
def test_a_peer_that_ends_within_a_frame_is_lost(wiring, listener):
    data = encode(Frame(PushMeta(runs=[]), payload_bytes=100)) + bytes(100)
    for length in (HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 3, len(data) - 1):
        peer, connection = meet(lambda: wiring.raw(listener), listener)
        peer.send(data[:length])
        peer.close()
        with pytest.raises(PeerLost, match="connection closed"):
            take(connection)
        connection.close()


def test_connect_where_nobody_listens(wiring):
    listener = wiring.transport().listen(wiring.host)
    address = listener.address
    listener.close()
    with pytest.raises(PeerLost, match=f"lost s7: cannot connect to {address[0]}:{address[1]}"):
        wiring.transport().connect(*address, "s7")


def test_closing_a_listener_ends_accept(wiring, listener):
    accepting = Aside(listener.accept)
    accepting.started.wait(TIMEOUT)
    listener.close()
    with pytest.raises(PeerLost):
        accepting.result()


def test_connections_outlive_their_listener(wiring):
    connected, accepted, listener = join(wiring)
    listener.close()
    connected.send(numbered(1))
    assert take(accepted)[0].version == 1
    connected.close()
    accepted.close()


def test_a_port_is_given_once(wiring, listener):
    host, port = listener.address
    assert host == wiring.host
    assert port > 0
    with pytest.raises(OSError, match="in use"):
        wiring.transport().listen(host, port)
    other = wiring.transport().listen(host)
    assert other.address[1] != port
    other.close()
