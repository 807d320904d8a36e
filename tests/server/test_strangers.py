"""Raw sockets at a server's data plane: who does not show the token, or says nothing, is sent away unread."""

import socket
import struct
import threading
import zlib
from contextlib import suppress

import pytest

from elastic_ps.server import connections
from elastic_ps.server.connections import Connections
from elastic_ps.transport import stream
from elastic_ps.transport.frames import HEADER_BYTES, MAX_META_BYTES, Frame, Kind, encode
from elastic_ps.transport.shm import ShmTransport
from elastic_ps.transport.tcp import TcpTransport

TOKEN, OTHER = bytes(range(16)), bytes(16)
HELLO = Frame(Kind.HELLO, meta={"node": "w0", "role": "worker", "lane": "exchange"})


class Untouched:
    """A receiver that no stranger must reach."""

    def __init__(self):
        self.welcomed = []

    def welcome(self, node, _lane):
        self.welcomed.append(node)
        return "not today"


class Door:
    """A server's connections, and where they listen."""

    def __init__(self, transport):
        listener = transport.listen("127.0.0.1")
        self.address = listener.address
        self.receiver = Untouched()
        self.connections = Connections(transport, listener, self.receiver, self._guard)
        self.connections.start()

    def _guard(self, name, body):
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread

    def knock(self):
        sock = socket.create_connection(self.address, timeout=20)
        sock.settimeout(20)
        return sock


@pytest.fixture(params=[TcpTransport, ShmTransport])
def door(request):
    made = Door(request.param(TOKEN))
    yield made
    made.connections.close()


@pytest.fixture
def unread(monkeypatch):
    """Nothing behind a header is read, decoded or given memory."""
    read = []
    take = stream.SocketConnection._take

    def counting(self, view):
        got = take(self, view)
        read.append(got)
        return got

    monkeypatch.setattr(stream.SocketConnection, "_take", counting)
    monkeypatch.setattr(stream, "decode_meta", lambda data: read.append(f"meta of {len(data)}"))
    return read


def answer(sock):
    """What comes until the other end closes."""
    parts = []
    try:
        while part := sock.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:  # it closed with bytes of ours unread
        pass
    return b"".join(parts)


def drip(sock, times):
    """A byte that begins a frame, again and again; raises OSError when the other end has closed."""
    sock.settimeout(0.02)
    for _ in range(times):
        sock.sendall(encode(HELLO, TOKEN)[:1])
        with suppress(TimeoutError):
            assert sock.recv(1) == b"", "nothing is said to a stranger"


def header(token, meta_bytes, payload_bytes):
    fields = struct.pack("<4sHH16sQQQIIQ", b"ELPS", 1, Kind.HELLO, token, 0, 0, 0, 0, meta_bytes, payload_bytes)
    return fields + struct.pack("<I", zlib.crc32(fields))


@pytest.mark.parametrize(
    "said",
    [
        encode(HELLO, OTHER),
        header(OTHER, MAX_META_BYTES, 2**64 - 1),
        header(OTHER, 2**32 - 1, 2**64 - 1),
        header(TOKEN, 2**32 - 1, 2**64 - 1),  # with the token, and still no memory for it
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(100),
        bytes(HEADER_BYTES),
        encode(HELLO, TOKEN)[:8] + bytes(HEADER_BYTES),
    ],
    ids=["another token", "huge meta", "huger meta", "huge meta, token", "http", "zeros", "no token"],
)
def test_strangers_are_sent_away_unread(door, unread, said):
    with door.knock() as sock:
        sock.sendall(said + bytes(4096))
        assert answer(sock) == b"", "a stranger is told nothing"
    assert sum(unread) == HEADER_BYTES
    assert door.receiver.welcomed == []


def test_who_shows_the_token_is_heard(door):
    with door.knock() as sock:
        sock.sendall(encode(HELLO, TOKEN))
        assert b"not today" in answer(sock)
    assert door.receiver.welcomed == ["w0"]


@pytest.mark.parametrize("said", [b"", encode(HELLO, TOKEN)[:30], encode(HELLO, TOKEN)[: HEADER_BYTES + 3]])
def test_who_does_not_say_who_it_is_is_not_waited_for(door, monkeypatch, said):
    monkeypatch.setattr(connections, "_GREETING_SECONDS", 0.2)
    with door.knock() as sock:
        sock.sendall(said)
        assert answer(sock) == b""
    assert door.receiver.welcomed == []


def test_a_byte_now_and_then_is_no_greeting(door, monkeypatch):
    monkeypatch.setattr(connections, "_GREETING_SECONDS", 0.3)
    with door.knock() as sock, pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        drip(sock, times=1000)
    assert door.receiver.welcomed == []


def test_a_greeted_peer_may_take_its_time(monkeypatch):
    """The greeting's patience ends with it."""
    monkeypatch.setattr(connections, "_GREETING_SECONDS", 0.2)
    ended = []

    class Welcoming(Untouched):
        def welcome(self, node, _lane):
            return ""

        def shares(self, _lane):
            return connections.Image(64), ()

        def lost(self, node, _lane, reason):
            ended.append((node, reason))

        def idle(self): ...

    made = Door(TcpTransport(TOKEN))
    made.connections._receiver = Welcoming()
    try:
        with made.knock() as sock:
            sock.sendall(encode(HELLO, TOKEN))
            assert sock.recv(HEADER_BYTES), "accepted"
            sock.settimeout(0.6)
            with pytest.raises(TimeoutError):
                sock.recv(1)  # it stays open, well beyond the patience
            assert ended == []
    finally:
        made.connections.close()
