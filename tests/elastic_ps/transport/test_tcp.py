"""What TCP does beyond the contract."""

import errno
import socket
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.system.strangers import MOST_STRANGERS
from elastic_ps.transport import stream
from elastic_ps.transport.frame_metas import JoinMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.stream import SocketConnection, SocketListener
from elastic_ps.transport.striped import PendingStripes
from elastic_ps.transport.tcp import TcpTransport, listening_socket
from tests.elastic_ps.transport.conftest import NO_IPV6
from tests.elastic_ps.transport.wiring import Aside, Striped, Tcp, join


class Strange(socket.socket):
    """A listening socket that nothing can be accepted from."""

    def accept(self):
        raise OSError(errno.EINVAL, "Invalid argument")


class Guarded(socket.socket):
    """A listening socket to which a firewall lets the second connection through."""

    first = True

    def accept(self):
        found = super().accept()
        if self.first:
            self.first = False
            found[0].close()
            raise OSError(errno.EPERM, "Operation not permitted")
        return found


class Forbidden(socket.socket):
    """A listening socket of a process that may accept nothing, so that whoever has connected goes on to wait."""

    tries = 0

    def accept(self):
        self.tries += 1
        raise PermissionError(errno.EPERM, "Operation not permitted")


def listening(kind, accepted):
    sock = kind(socket.AF_INET)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    return SocketListener({sock: accepted}, sock.getsockname()), sock.getsockname()


def test_a_listener_in_trouble_is_not_taken_for_a_closed_one():
    listener, address = listening(Strange, lambda _sock, _peer: pytest.fail("nobody came"))
    with socket.create_connection(address), pytest.raises(OSError, match="Invalid argument"):
        listener.accept()
    listener.close()


def test_a_connection_that_the_system_refuses_keeps_no_later_one_out():
    listener, address = listening(Guarded, lambda sock, _peer: sock)
    with socket.create_connection(address), socket.create_connection(address):
        listener.accept().close()
    listener.close()


def test_a_process_that_may_accept_nothing_does_not_try_without_a_pause(monkeypatch):
    sock = Forbidden(socket.AF_INET)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    listener = SocketListener({sock: lambda _sock, _peer: pytest.fail("nobody came")}, sock.getsockname())
    pauses = []

    def pause(seconds):
        pauses.append((seconds, sock.tries))
        if len(pauses) == 3:
            listener.close()

    monkeypatch.setattr(stream, "time", SimpleNamespace(sleep=pause))
    with socket.create_connection(sock.getsockname()), pytest.raises(PeerLost):
        listener.accept()
    assert pauses == [(stream._REFUSED_SECONDS, tries) for tries in (1, 2, 3)]


@pytest.mark.parametrize(
    ("wiring", "sockets"), [(Tcp("127.0.0.1"), 1), (Striped("127.0.0.1"), 3)], ids=["one", "three"]
)
def test_a_path_that_ends_without_a_reset_breaks_its_connection_within_a_lease(wiring, sockets):
    connected, accepted, listener = join(wiring)
    for end in (connected, accepted):
        parts = [end, *getattr(end, "_others", ())]
        assert len(parts) == sockets
        for sock in [part.detached() for part in parts]:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle, every, times = (sock.getsockopt(socket.IPPROTO_TCP, option) for option in options)
            assert idle + every * times <= 12
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
        end.close()
    listener.close()


@pytest.mark.slow
def test_a_process_without_descriptors_turns_newcomers_away_and_goes_on():
    """1,050 idle connections ended a server so."""
    script = """
import os, resource, socket, sys, threading
from elastic_ps.transport.tcp import TcpTransport
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
transport = TcpTransport(bytes(16))
listener = transport.listen("127.0.0.1")
accepted = []
threading.Thread(target=lambda: [accepted.append(listener.accept()) for _ in iter(int, 1)], daemon=True).start()
print(listener.address[1], flush=True)
for line in sys.stdin:
    if line.strip() == "close":
        while accepted:
            accepted.pop().close()
    print(len(accepted), flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process, ExitStack() as held:
        port = int(process.stdout.readline())
        crowd = [held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(80)]
        crowd[-1].settimeout(20)
        assert crowd[-1].recv(1) == b"", "the last is turned away"

        def said(word):
            process.stdin.write(word + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        assert 20 < said("count") < 64
        assert said("close") == 0
        newcomer = Aside(TcpTransport(bytes(16)).connect, "127.0.0.1", port, "s0", 5)
        while said("count") == 0:
            assert process.poll() is None
        process.stdin.close()
        with pytest.raises(PeerLost):
            newcomer.result()  # it was let in; nobody greets in this process
        process.terminate()


@pytest.mark.slow
def test_the_sockets_of_a_connection_work_while_the_interpreter_ends():
    """The last push of a static script is exchanged then; it was tried again and again for ever."""
    script = """
import atexit, socket, threading
import numpy as np
from elastic_ps.transport.frame_metas import ValueMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.striped import StripedConnection
ends = [StripedConnection(sockets, "s0") for sockets in zip(*(socket.socketpair() for _ in range(3)))]

def take(found):
    found.append(np.zeros(ends[1].receive().payload_bytes, np.uint8))
    ends[1].receive_into(found)

def exchange():
    sent, found = np.arange(1 << 18), []
    taking = threading.Thread(target=take, args=(found,), daemon=True)
    taking.start()
    ends[0].send(Frame(ValueMeta()), [sent])
    taking.join(20)
    print((found[0].view(sent.dtype) == sent).all())
    for end in ends:
        end.close()

atexit.register(exchange)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.returncode) == ("True\n", 0), ran.stderr


@pytest.mark.parametrize("host", ["a" * 70, "a..b"])
def test_a_peer_whose_host_is_no_name_cannot_be_reached(host):
    """Nodes say themselves where they are reached: to look such a name up raises what no other failure does."""
    with pytest.raises(PeerLost, match="lost s0: cannot connect to a"):
        TcpTransport(bytes(16)).connect(host, 9, "s0")


def test_sockets_of_connections_that_are_never_complete_are_bounded():
    """Each is a descriptor, and nobody asks whether their other ends live."""
    pending = PendingStripes()
    with ExitStack() as kept:

        def knock(name, part=0):
            own, theirs = socket.socketpair()
            kept.enter_context(theirs).settimeout(20)
            connection = SocketConnection(own, name)
            kept.callback(connection.close)
            assert pending.add(connection, Frame(JoinMeta(connection=name, part=part, of=3))) is None
            return theirs

        ends = [knock(str(number)) for number in range(MOST_STRANGERS + 1)]
        assert ends[0].recv(1) == b"", "the oldest goes"
        knock("1", part=1)
        with pytest.raises(ProtocolError, match="part 1 of connection '1' twice"):
            knock("1", part=1)
        ends[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            ends[1].recv(1)


@NO_IPV6
@pytest.mark.parametrize(("addresses", "taken"), [(["::1"], "::1"), (["::1", "127.0.0.1"], "127.0.0.1")])
def test_a_name_is_listened_to_by_ipv6_where_it_has_nothing_else(monkeypatch, addresses, taken):
    """Only a literal address was: a name had to have one of IPv4."""
    resolve = socket.getaddrinfo

    def resolved(_host, *others, **options):
        return [found for address in addresses for found in resolve(address, *others, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with listening_socket("other.test", 0) as sock:
        assert sock.getsockname()[0] == taken
