"""What shared memory does beyond the contract."""

import gc
import os
import re
import resource
from contextlib import contextmanager

import numpy as np
import pytest

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.transport.choice import AutoTransport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import AcceptedMeta, PushMeta, ValueMeta
from elastic_ps.transport.frames import Frame, encode
from elastic_ps.transport.shared_memory import Image
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from tests.elastic_ps.transport.wiring import TOKEN, Aside, Shm, join, meet, numbered, take


@pytest.fixture
def wiring():
    made = Shm("127.0.0.1")
    yield made
    made.close()


@pytest.fixture
def images():
    return Image(1000), Image(2000), Image(0)


@pytest.fixture
def line(wiring, images):
    """(worker, server), who have images in common."""
    connected, accepted, listener = join(wiring)
    accepted.share(images[0], images[1:])
    accepted.send(Frame(AcceptedMeta()))
    assert connected.receive().kind is Kind.ACCEPTED
    yield connected, accepted
    for end in (connected, accepted, listener):
        end.close()


def test_what_lies_in_shared_memory_does_not_travel(line, images):
    worker, server = line
    worker.shared[0].array[100:110] = 7
    worker.send(numbered(1), [worker.shared[0].array[100:110]])
    frame = server.receive()
    assert (frame.payload_bytes, frame.at) == (10, ((0, 100, 10),))
    assert server.image_at([slice(100, 110)]) is images[0]
    assert server.image_at([slice(100, 109)]) is None
    own = images[0].array[100:110]
    server.receive_into([own])  # nothing is copied
    assert own.tolist() == [7] * 10


def test_a_receiver_who_wants_it_elsewhere_gets_a_copy(line, images):
    worker, server = line
    images[1].array[:6] = range(6)
    server.send(numbered(1), [images[1].array[:2], images[1].array[4:6]])
    assert worker.receive().payload_bytes == 4
    parts = [np.empty(3, np.uint8), np.empty(1, np.uint8)]
    worker.receive_into(parts[:1])
    worker.receive_into(parts[1:])
    assert [part.tolist() for part in parts] == [[0, 1, 4], [5]]


def test_other_memory_travels_as_ever(line, images):
    worker, server = line
    mixed = [worker.shared[0].array[:4], np.ones(4, np.uint8)]
    worker.send(numbered(1), mixed)
    assert take(server) == (Frame(ValueMeta(), version=1, payload_bytes=8), bytes([0] * 4 + [1] * 4))
    large = np.ones(8 << 20, np.uint8)
    sending = Aside(server.send, numbered(2), [large])
    assert take(worker)[1] == large.tobytes()
    sending.result()


def test_memory_may_grow(line, images):
    worker, server = line
    images[2].grow(1 << 20)
    images[2].array[-1] = 9
    server.send(numbered(1), [images[2].array[-1:]])
    assert take(worker)[1] == bytes([9])


def test_a_worker_cannot_change_the_values(line):
    for image in line[0].shared[1:2]:
        with pytest.raises(ValueError, match="read-only"):
            image.array[0] = 1


@pytest.mark.parametrize("at", [[[3, 0, 1]], [[0, 999, 2]], [[0, -1, 1]], [[0, 0, 2]], [[0, 0]], 7, [["x", 0, 1]]])
def test_places_outside_of_the_memory_are_refused(line, at):
    worker, server = line
    worker._socket.sendall(encode(Frame(PushMeta(), payload_bytes=1, at=at)))
    with pytest.raises(ProtocolError):
        server.receive()


def test_who_cannot_share_memory_takes_tcp_and_knows_why():
    listener = TcpTransport(TOKEN).listen("127.0.0.1")
    connection, accepted = meet(lambda: AutoTransport(TOKEN).connect(*listener.address, "s0"), listener)
    accepted.send(numbered(1), [b"x"])
    assert take(connection)[1] == b"x"
    assert "not on this host" in connection.reason
    with pytest.raises(PeerLost, match="shared memory"):
        ShmTransport(TOKEN).connect(*listener.address, "s0")
    for end in (connection, accepted, listener):
        end.close()


def test_a_server_that_shares_memory_is_reached_by_tcp_too():
    listener = AutoTransport(TOKEN).listen("127.0.0.1")
    for kind in (TcpTransport, AutoTransport):
        connected, accepted = meet(lambda kind=kind: kind(TOKEN).connect(*listener.address, "s0"), listener)
        assert connected.reason == ""
        connected.close()
        accepted.close()
    listener.close()


@contextmanager
def _free_descriptors(count):
    """This process has only so many left."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(_open()) + count + 1, limits[1]))
        try:
            while True:
                used.append(os.dup(0))
        except OSError:
            for descriptor in used[len(used) - count :]:
                os.close(descriptor)
            del used[len(used) - count :]
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in used:
            os.close(descriptor)


def _open():
    return {int(number) for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")}


@pytest.mark.parametrize("free", range(1, 5))
def test_who_has_no_room_for_all_images_takes_none_and_keeps_none(wiring, images, free):
    """A new connection is tried again and again: if each try kept some, nothing would ever be left."""
    connected, accepted, listener = join(wiring)
    accepted.share(images[0], images[1:])
    accepted.send(Frame(AcceptedMeta()))
    gc.collect()
    before = _open()
    with _free_descriptors(free), pytest.raises(PeerLost, match="Too many open files"):
        connected.receive()
    gc.collect()
    assert _open() == before
    assert connected.shared == ()
    for end in (connected, accepted, listener):
        end.close()


def test_who_has_no_room_for_the_memory_of_a_peer_takes_tcp_next(images):
    """It was tried by shared memory for ever."""
    transport = AutoTransport(TOKEN)
    listener = transport.listen("127.0.0.1")
    connected, accepted = meet(lambda: transport.connect(*listener.address, "s0"), listener)
    accepted.share(images[0], images[1:])
    accepted.send(Frame(AcceptedMeta()))
    with _free_descriptors(2), pytest.raises(PeerLost, match="Too many open files"):
        connected.receive()
    second, other = meet(lambda: transport.connect(*listener.address, "s0"), listener)
    assert (connected.kind, second.kind) == ("shm", "tcp")
    assert re.fullmatch(r"no room for the memory of .*Too many open files\); .*: raise `ulimit -n`", second.reason)
    for end in (connected, accepted, second, other, listener):
        end.close()


def test_a_server_without_room_to_share_keeps_nothing(wiring, images):
    connected, accepted, listener = join(wiring)
    gc.collect()
    before = _open()
    with _free_descriptors(2), pytest.raises(OSError, match="Too many open files"):
        accepted.share(images[0], images[1:])
    for end in (connected, accepted, listener):
        end.close()
    gc.collect()
    assert _open() < before
