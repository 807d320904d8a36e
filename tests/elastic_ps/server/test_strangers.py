"""Raw sockets at a server's data plane: who does not prove the token, or says nothing, is sent away unread."""

import errno
import queue
import socket
import struct
import threading
from contextlib import ExitStack, suppress

import pytest

from elastic_ps.core.errors import PeerLost
from elastic_ps.server import connections
from elastic_ps.server.connections import Connections
from elastic_ps.system.strangers import MOST_STRANGERS
from elastic_ps.transport import stream
from elastic_ps.transport.frame_metas import HelloMeta
from elastic_ps.transport.frames import HEADER_BYTES, Frame, encode
from elastic_ps.transport.greeting import MAGIC, PROTOCOL_VERSION, call
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport

TOKEN = bytes(range(16))
HELLO = Frame(HelloMeta(node="w0", role="worker", lane="exchange"))


class Untouched:
    """A receiver that no stranger must reach."""

    def __init__(self):
        self.welcomed = []

    def welcome(self, node, _lane, _to):
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
    """No header of a stranger's is read, and nothing is decoded or given memory."""
    read = []
    monkeypatch.setattr(stream.SocketConnection, "_take", lambda _self, view: read.append(len(view)))
    monkeypatch.setattr(stream, "decode", lambda _header, data: read.append(f"meta of {len(data)}"))
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
    """A byte that begins a greeting, again and again; raises OSError when the other end has closed."""
    sock.settimeout(0.02)
    for _ in range(times):
        sock.sendall(b"E")
        with suppress(TimeoutError):
            assert sock.recv(1) == b"", "nothing is said to a stranger"


def first(magic=MAGIC, protocol=PROTOCOL_VERSION):
    """The first bytes of who connects."""
    return struct.pack("<4sHH32s", magic, protocol, 0, bytes(32))


@pytest.mark.parametrize(
    "said",
    [first(protocol=9), b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(100), bytes(40), encode(HELLO)],
    ids=["another protocol", "http", "zeros", "a frame"],
)
def test_strangers_are_sent_away_unread(door, unread, said):
    with door.knock() as sock:
        sock.sendall(said + bytes(4096))
        assert answer(sock) == b"", "a stranger is told nothing"
    assert unread == []
    assert door.receiver.welcomed == []


def test_who_cannot_prove_the_token_has_no_frame_read(door, unread):
    with door.knock() as sock:
        sock.sendall(first() + bytes(32) + encode(HELLO))
        assert len(answer(sock)) == 72, "a nonce and a proof that serves nobody else"
    assert unread == []
    assert door.receiver.welcomed == []


def test_a_proof_cannot_be_shown_to_who_made_it(door):
    """Two connections to one server: what it proves on one does not open the other."""
    with door.knock() as one, door.knock() as other:
        one.sendall(first())
        one.recv(8)
        theirs, shown = one.recv(32), one.recv(32)
        other.sendall(struct.pack("<4sHH32s", MAGIC, PROTOCOL_VERSION, 0, theirs))
        other.sendall(shown)
        assert len(answer(other)) == 72
    assert door.receiver.welcomed == []


def test_the_token_is_never_sent_to_whoever_answers():
    """A thief who has taken the port of a server that died."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as thief:

        def steal():
            sock, _ = thief.accept()
            with sock:
                heard.append(sock.recv(1000))
                sock.sendall(struct.pack("<4sHH32s32s", MAGIC, PROTOCOL_VERSION, 0, bytes(32), bytes(32)))
                heard.append(sock.recv(1000))

        stealing = threading.Thread(target=steal)
        stealing.start()
        with pytest.raises(PeerLost, match="does not know this job's token"):
            TcpTransport(TOKEN).connect(*thief.getsockname(), "s0")
        stealing.join(20)
    assert TOKEN not in b"".join(heard)
    assert (len(heard[0]), heard[1]) == (40, b"")


def test_another_node_cannot_answer_in_the_place_of_one_that_died(door):
    """The thief passes on what he hears to a server that lives, on another port."""
    with socket.create_server(("127.0.0.1", 0)) as thief:

        def pass_on():
            sock, _ = thief.accept()
            with sock, door.knock() as living:
                living.sendall(sock.recv(1000))
                sock.sendall(living.recv(1000))

        passing = threading.Thread(target=pass_on)
        passing.start()
        with pytest.raises(PeerLost, match="does not know this job's token"):
            TcpTransport(TOKEN).connect(*thief.getsockname(), "s0")
        passing.join(20)


def greeted(door):
    sock = door.knock()
    call(sock, "s0", TOKEN, door.address[1], 20)
    sock.settimeout(20)
    return sock


def test_who_knows_the_token_is_heard(door):
    with greeted(door) as sock:
        sock.sendall(encode(HELLO))
        assert b"not today" in answer(sock)
    assert door.receiver.welcomed == ["w0"]


@pytest.mark.parametrize("said", [b"", first()[:30], first()])
def test_who_does_not_say_who_it_is_is_not_waited_for(door, monkeypatch, said):
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.2)
    with door.knock() as sock:
        sock.sendall(said)
        assert len(answer(sock)) == (72 if said == first() else 0)
    assert door.receiver.welcomed == []


def test_nor_is_who_has_greeted_and_then_says_nothing(door, monkeypatch):
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.5)
    with greeted(door) as sock:
        sock.sendall(encode(HELLO)[: HEADER_BYTES + 3])
        assert answer(sock) == b""


def test_a_byte_now_and_then_is_no_greeting(door, monkeypatch):
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.3)
    with door.knock() as sock, pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        drip(sock, times=1000)
    assert door.receiver.welcomed == []


def test_of_many_strangers_the_oldest_go_and_a_member_gets_in(door, caplog):
    """1,050 idle connections ended a server: now as many threads and descriptors are used as `MOST_STRANGERS`."""
    with ExitStack() as held:
        crowd = [held.enter_context(door.knock()) for _ in range(3 * MOST_STRANGERS)]
        for sock in crowd[: 2 * MOST_STRANGERS]:
            assert answer(sock) == b""
        assert len(door.connections._strangers) <= MOST_STRANGERS
        with greeted(door) as sock:
            sock.sendall(encode(HELLO))
            assert b"not today" in answer(sock)
    assert 0 < sum("was closed" in record.message for record in caplog.records) < 10


def test_who_comes_when_no_descriptor_is_left_is_turned_away(door, caplog, monkeypatch):
    """Else the newcomer would end the server, and as many servers as it knocks at: a block's owner and its follower."""

    def shares(_lane):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(door.receiver, "welcome", lambda _node, _lane, _to: "")
    monkeypatch.setattr(door.receiver, "shares", shares, raising=False)
    with greeted(door) as sock:
        sock.sendall(encode(HELLO))
        assert answer(sock) == b""
    assert "was closed: [Errno 24] Too many open files" in caplog.text
    for thread in threading.enumerate():
        if thread.name.startswith("greet-"):
            thread.join(20)
    assert len(door.connections._strangers) == 0


@pytest.mark.parametrize("silent", ["before the greeting", "after it"])
def test_only_the_thread_that_reads_from_a_stranger_closes_its_socket(door, monkeypatch, silent):
    """Closed by another, its number might be a member's by the time at which the thread reads."""
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.3)
    closed_by, close = queue.SimpleQueue(), stream.SocketConnection.close

    def told(connection):
        if not (name := threading.current_thread().name).startswith("receive-"):  # that of a peer of a test before
            closed_by.put(name)
        close(connection)

    monkeypatch.setattr(stream.SocketConnection, "close", told)
    with ExitStack() as held:
        if silent == "after it":
            crowd = [held.enter_context(greeted(door))]
        else:
            crowd = [held.enter_context(door.knock()) for _ in range(MOST_STRANGERS + 3)]
        for sock in crowd:
            assert answer(sock) == b""
        names = [closed_by.get(timeout=20) for _ in crowd]
    assert {name.partition("-")[0] for name in names} == {"greet"}


def test_a_greeted_peer_may_take_its_time(monkeypatch):
    """The greeting's patience ends with it."""
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.5)
    ended = []

    class Welcoming(Untouched):
        def welcome(self, node, _lane, _to):
            return ""

        def shares(self, _lane):
            return connections.Image(64), ()

        def connected(self, node, _lane): ...

        def lost(self, node, _lane, reason):
            ended.append((node, reason))

        def idle(self): ...

    made = Door(TcpTransport(TOKEN))
    made.connections._receiver = Welcoming()
    try:
        with greeted(made) as sock:
            sock.sendall(encode(HELLO))
            assert sock.recv(HEADER_BYTES), "accepted"
            sock.settimeout(0.8)
            with pytest.raises(TimeoutError):
                sock.recv(1)  # it stays open, well beyond the patience
            assert ended == []
    finally:
        made.connections.close()
