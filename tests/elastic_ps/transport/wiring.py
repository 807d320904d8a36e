"""What the contract suite needs of each transport."""

import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from elastic_ps.control.token import TOKEN_BYTES
from elastic_ps.core.errors import ElasticError
from elastic_ps.testing.memory_transport import MemoryNetwork, MemoryTransport
from elastic_ps.transport.base import Connection, Listener, Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import ValueMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.greeting import call
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport

TOKEN = bytes(range(TOKEN_BYTES))
TIMEOUT = 20.0


class Raw(NamedTuple):
    """A peer that has greeted, and sends bytes which need be no frame."""

    send: Callable[[bytes], Any]
    close: Callable[[], Any]


class Wiring(Protocol):
    host: str

    def transport(self, token: bytes = TOKEN) -> Transport: ...

    def raw(self, listener: Listener) -> Raw: ...


class Tcp:
    def __init__(self, host: str):
        self.host = host
        self._sockets: list[socket.socket] = []

    def transport(self, token: bytes = TOKEN) -> Transport:
        return TcpTransport(token)

    def raw(self, listener: Listener) -> Raw:
        self._sockets.append(socket.create_connection(listener.address, timeout=TIMEOUT))
        call(self._sockets[-1], "server", TOKEN, listener.address[1], TIMEOUT)
        return Raw(self._sockets[-1].sendall, self._sockets[-1].close)

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


class Striped(Tcp):
    """Connections of three sockets, put together as a server does; `raw` is a peer with one."""

    def transport(self, token: bytes = TOKEN) -> Transport:
        return Gathering(token, sockets=3)


class Gathering(TcpTransport):
    """Whose listener gives whole connections."""

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        return _Gathered(super().listen(host, port, reached_as), self)


class _Gathered:
    def __init__(self, listener: Listener, transport: TcpTransport):
        self.address = listener.address
        self.close = listener.close
        self._listener = listener
        self._transport = transport

    def accept(self) -> Connection:
        connection = self._greeted()
        if not self._is_part(connection):
            return connection
        while (whole := self._transport.joined(connection, connection.receive())) is None:
            connection = self._greeted()
        return whole

    def _greeted(self) -> Connection:
        connection = self._listener.accept()
        try:
            connection.greet(TIMEOUT)
        except ElasticError:
            connection.close()
            raise
        return connection

    @staticmethod
    def _is_part(connection: Connection) -> bool:
        sock = connection.detached()
        ready = select.poll()
        ready.register(sock, select.POLLIN)
        start = sock.recv(8, socket.MSG_PEEK) if ready.poll(500) else b""
        return start[6:] == Kind.JOIN.to_bytes(2, "little")


class Shm(Tcp):
    def transport(self, token: bytes = TOKEN) -> Transport:
        """By which a stranger does not even find the job's servers: it comes by TCP."""
        return ShmTransport(token) if token == TOKEN else TcpTransport(token)

    def raw(self, listener: Listener) -> Raw:
        self._sockets.append(socket.socket(socket.AF_UNIX))
        self._sockets[-1].connect(ShmTransport(TOKEN).rendezvous.name(*listener.address))
        call(self._sockets[-1], "server", TOKEN, listener.address[1], TIMEOUT)
        return Raw(self._sockets[-1].sendall, self._sockets[-1].close)


class Memory:
    host = "here"

    def __init__(self) -> None:
        self.network = MemoryNetwork()

    def transport(self, token: bytes = TOKEN) -> Transport:
        return MemoryTransport(token, self.network, "node")

    def raw(self, listener: Listener) -> Raw:
        connection = MemoryTransport(TOKEN, self.network, "stranger").connect(*listener.address, "node")
        return Raw(connection.send_raw, connection.close)

    def close(self) -> None:
        """Nothing is held."""


def join(wiring: Wiring) -> tuple[Connection, Connection, Listener]:
    """(connected, accepted, listener)."""
    transport = wiring.transport()
    listener = transport.listen(wiring.host)
    return *meet(lambda: transport.connect(*listener.address, "server"), listener), listener


def meet(connect: Callable[[], Any], listener: Listener) -> tuple[Any, Connection]:
    """What `connect` returns, and the connection that has been accepted meanwhile; both ends have greeted."""
    connecting = Aside(connect)
    accepted = listener.accept()
    accepted.greet(TIMEOUT)
    return connecting.result(), accepted


def take(connection: Connection) -> tuple[Frame, bytes]:
    frame = connection.receive()
    data = np.empty(frame.payload_bytes, dtype=np.uint8)
    connection.receive_into([data])
    return frame, data.tobytes()


def numbered(number: int) -> Frame:
    return Frame(ValueMeta(), version=number)


class Aside:
    """A call in a thread of its own, and how it ended."""

    def __init__(self, call: Callable[..., Any], *arguments: Any):
        self._call = call
        self._arguments: Sequence[Any] = arguments
        self.started = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.started.set()
        try:
            self._result = self._call(*self._arguments)
        except BaseException as error:  # noqa: BLE001  # shown by result()
            self._error = error

    def result(self) -> Any:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), f"{self._call} has not ended"
        if self._error is not None:
            raise self._error
        return self._result
