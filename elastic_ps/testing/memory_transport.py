"""This module makes connections inside one process, whose faults a test scripts.

A connection is two streams of bytes, encoded and decoded by the same code as on TCP. A `MemoryNetwork` joins named
transports and plays `FrameFault`s on the frames that pass: it holds, drops, duplicates or reverses them, or cuts the
connection in their midst.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Condition, Lock

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.testing.byte_stream import ByteStream
from elastic_ps.testing.frame_faults import FrameFault
from elastic_ps.transport.base import Buffer, Connection, Listener, Unshared, flat
from elastic_ps.transport.frames import HEADER_BYTES, Frame, decode, decode_header, encode

DEFAULT_CAPACITY = 4 << 20
"""Bytes that a stream takes before its sender waits, like a socket's buffer."""


class MemoryConnection(Unshared):
    """See `Connection`. `send` copies the payload."""

    kind = "memory"

    def __init__(self, network: "MemoryNetwork", name: str, peer: str, out: ByteStream, into: ByteStream):
        self.peer = peer
        self._network = network
        self._name = name
        self._out = out
        self._into = into
        self._sending = Lock()
        self._received = self._sent = 0

    @property
    def moved(self) -> tuple[int, int]:
        """See `Connection.moved`."""
        return self._received, self._sent

    def greet(self, seconds: float) -> None:
        """See `Connection.greet`: `MemoryNetwork.connect` has looked who may connect."""

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """See `Connection.send`."""
        parts = [flat(part) for part in payload]
        frame.payload_bytes = sum(part.nbytes for part in parts)
        head = encode(frame)
        with self._sending:
            if not self._out.wait_for_room():
                raise PeerLost(self.peer, "connection closed")
            data = b"".join((head, *parts))
            self._sent += len(data)
            self._network.pass_on(frame, self._name, self.peer, lambda: self._out.write(data), lambda: self._cut(data))

    def offer(self, frame: Frame, payload: Sequence[Buffer] = ()) -> bool:
        """See `Connection.offer`: never, since a fault may hold any frame."""
        return False

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need be no frame: a foreign or broken peer does that."""
        self._out.write(data)

    def receive(self) -> Frame:
        """See `Connection.receive`."""
        data = bytearray(HEADER_BYTES)
        self._fill(memoryview(data))
        header = decode_header(data)
        meta = bytearray(header.meta_bytes)
        self._fill(memoryview(meta))
        return decode(header, meta)

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """See `Connection.receive_into`."""
        for buffer in buffers:
            self._fill(flat(buffer))

    def hang_up(self) -> None:
        """See `Connection.hang_up`."""
        self.close()

    def close(self) -> None:
        """See `Connection.close`."""
        self._out.end()
        self._into.abort()

    def _fill(self, view: memoryview) -> None:
        if not self._into.fill(view):
            raise PeerLost(self.peer, "connection closed")
        self._received += view.nbytes

    def _cut(self, data: bytes) -> None:
        self._out.write(data[: len(data) // 2])
        self.close()


class MemoryListener:
    """See `Listener`."""

    def __init__(self, transport: "MemoryTransport", address: tuple[str, int]):
        self.address = address
        self.transport = transport
        self._changed = Condition()
        self._arrived: deque[MemoryConnection] = deque()
        self._closed = False

    def accept(self) -> Connection:
        """See `Listener.accept`."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._closed)
            if self._closed:
                raise PeerLost("listener", "closed")
            return self._arrived.popleft()

    def arrive(self, connection: MemoryConnection) -> None:
        """Take the connection of a peer."""
        with self._changed:
            self._arrived.append(connection)
            self._changed.notify_all()

    def close(self) -> None:
        """See `Listener.close`."""
        self.transport.network.forget(self.address)
        with self._changed:
            self._closed = True
            abandoned = list(self._arrived)
            self._changed.notify_all()
        for connection in abandoned:
            connection.close()


class MemoryNetwork:
    """A `MemoryNetwork` joins the transports of a test.

    Args:
        capacity: bytes that each direction of a connection takes before its sender waits.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY):
        self._capacity = capacity
        self._lock = Lock()
        self._ports = count(1)
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._faults: list[FrameFault] = []

    @contextmanager
    def faults(self, *faults: FrameFault) -> Iterator[None]:
        """Play faults inside a `with` block. A frame is struck by the first that matches.

        Raises:
            AssertionError: the block ended well, but some fault has not fired: the test tested something else.
        """
        with self._lock:
            self._faults.extend(faults)
        try:
            yield
        finally:
            with self._lock:
                self._faults = [known for known in self._faults if not any(known is fault for fault in faults)]
            for fault in faults:
                fault.release()
        idle = [fault for fault in faults if not fault.fired.is_set()]
        if idle:
            raise AssertionError(f"faults that have not fired: {idle}")

    def pass_on(
        self, frame: Frame, sender: str, receiver: str, deliver: Callable[[], None], cut: Callable[[], None]
    ) -> None:
        """Deliver a frame, or what a fault makes of it.

        Args:
            frame: that passes.
            sender: name of the transport that it comes from.
            receiver: name of the transport that it goes to.
            deliver: lets it arrive.
            cut: lets half of it arrive, and breaks the connection.
        """
        with self._lock:
            faults = list(self._faults)
        if not any(fault.strike(frame, sender, receiver, deliver, cut) for fault in faults):
            deliver()

    def listen(self, transport: "MemoryTransport", host: str, port: int) -> MemoryListener:
        """Listen at (host, port).

        Args:
            transport: that listens.
            host: any name.
            port: 0 takes a free one.

        Raises:
            OSError: somebody listens there.
        """
        with self._lock:
            address = (host, port or next(number for number in self._ports if (host, number) not in self._listeners))
            if address in self._listeners:
                raise OSError(f"{host}:{port} is in use")
            listener = self._listeners[address] = MemoryListener(transport, address)
            return listener

    def connect(self, transport: "MemoryTransport", host: str, port: int, peer: str) -> MemoryConnection:
        """Join a transport to the listener at (host, port).

        Args:
            transport: that connects.
            host: as it was listened at.
            port: as it was listened at.
            peer: name of the node there, for errors.

        Raises:
            PeerLost: nobody listens there, or somebody of another job.
        """
        with self._lock:
            listener = self._listeners.get((host, port))
        if listener is None:
            raise PeerLost(peer, f"cannot connect to {host}:{port}: nobody listens there")
        there, back = ByteStream(self._capacity), ByteStream(self._capacity)
        if listener.transport.token != transport.token:
            raise PeerLost(peer, "whoever answers there does not know this job's token, and is not part of it")
        listener.arrive(MemoryConnection(self, listener.transport.name, transport.name, back, there))
        return MemoryConnection(self, transport.name, peer, there, back)

    def forget(self, address: tuple[str, int]) -> None:
        """Take note that nobody listens there any more."""
        with self._lock:
            self._listeners.pop(address, None)


class MemoryTransport:
    """See `Transport`.

    Args:
        token: the job's, `control.token.TOKEN_BYTES` long.
        network: that this node is in.
        name: of this node, by which faults are scripted.
    """

    def __init__(self, token: bytes, network: MemoryNetwork, name: str):
        self.token = token
        self.network = network
        self.name = name

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        """See `Transport.listen`."""
        return self.network.listen(self, host, port)

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> MemoryConnection:
        """See `Transport.connect`; it never takes long."""
        return self.network.connect(self, host, port, peer)

    def joined(self, connection: Connection, frame: Frame) -> Connection | None:
        """See `Transport.joined`."""
        raise ProtocolError("JOIN has come in memory, where a connection has no sockets")
