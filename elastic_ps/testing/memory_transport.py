"""Connections inside one process, whose faults a test scripts.

A connection is two streams of bytes, encoded and decoded by the same code as on TCP. A `Network` joins named
transports and plays `Fault`s on the frames that pass: it holds, drops, duplicates or reverses them, or cuts the
connection in their midst.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from threading import Condition, Event, Lock, RLock
from typing import Any

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.transport.base import Buffer, Connection, Listener, Unshared, flat
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frames import HEADER_BYTES, Frame, decode, decode_header, encode

DEFAULT_CAPACITY = 4 << 20
"""Bytes that a stream takes before its sender waits, like a socket's buffer."""


class Action(Enum):
    """What a fault does to the frames that it strikes."""

    HOLD = auto()  # kept until `Fault.release`
    DROP = auto()
    DUPLICATE = auto()
    REVERSE = auto()  # kept until the last one comes, then delivered last first
    CUT = auto()  # half of the frame's bytes arrive, then the connection is broken


@dataclass
class Fault:
    """Strikes frames that match, and no others.

    Args:
        action: what it does.
        kind: of the frames.
        sender: name of the transport that they come from; empty: any.
        receiver: name of the transport that they go to; empty: any.
        version: of the frames; None: any.
        skip: matching frames that pass before the first that is struck.
        times: frames to strike; it has fired when all have come.
    """

    action: Action
    kind: Kind
    sender: str = ""
    receiver: str = ""
    version: int | None = None
    skip: int = 0
    times: int = 1
    fired: Event = field(default_factory=Event, repr=False)
    _struck: int = field(default=0, repr=False)
    _kept: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _lock: Any = field(default_factory=RLock, repr=False)  # an RLock, for which there is no type

    def release(self) -> None:
        """Deliver what is held, in order; frames that match later pass."""
        with self._lock:
            self._struck = self.times
            for deliver in self._kept:
                deliver()
            self._kept.clear()

    def strike(
        self, frame: Frame, sender: str, receiver: str, deliver: Callable[[], None], cut: Callable[[], None]
    ) -> bool:
        """Deal with a frame that passes; False where this fault lets it be."""
        with self._lock:
            if self._struck == self.times or not self._matches(frame, sender, receiver):
                return False
            if self.skip:
                self.skip -= 1
                return False
            self._struck += 1
            self._act(deliver, cut)
            if self._struck == self.times:
                self.fired.set()
            return True

    def _matches(self, frame: Frame, sender: str, receiver: str) -> bool:
        ends = self.sender in ("", sender) and self.receiver in ("", receiver)
        return frame.kind is self.kind and ends and self.version in (None, frame.version)

    def _act(self, deliver: Callable[[], None], cut: Callable[[], None]) -> None:
        if self.action is Action.CUT:
            cut()
        elif self.action is Action.DUPLICATE:
            deliver()
            deliver()
        elif self.action is Action.HOLD:
            self._kept.append(deliver)
        elif self.action is Action.REVERSE:
            self._kept.insert(0, deliver)
            if self._struck == self.times:
                self.release()


class _Stream:
    """Bytes on their way from one end to the other."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._changed = Condition()
        self._chunks: deque[memoryview] = deque()
        self._waiting = 0
        self._ended = False  # nothing more is written
        self._broken = False  # nothing more is read

    def wait_for_room(self) -> bool:
        """Wait until the stream takes bytes; False where it does not any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._broken or self._waiting < self._capacity)
            return not self._ended and not self._broken

    def write(self, data: bytes | memoryview) -> None:
        with self._changed:
            if data and not self._ended and not self._broken:
                self._chunks.append(memoryview(data))
                self._waiting += len(data)
                self._changed.notify_all()

    def fill(self, view: memoryview) -> bool:
        """Read exactly `view`; False where the stream ends before."""
        while view.nbytes:
            with self._changed:
                self._changed.wait_for(lambda: self._chunks or self._ended or self._broken)
                if self._broken or not self._chunks:
                    return False
                chunk = self._chunks.popleft()
                got = min(view.nbytes, chunk.nbytes)
                view[:got] = chunk[:got]
                if got < chunk.nbytes:
                    self._chunks.appendleft(chunk[got:])
                self._waiting -= got
                self._changed.notify_all()
            view = view[got:]
        return True

    def end(self) -> None:
        """What has been written is still read."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abort(self) -> None:
        """Nothing is read any more."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()


class MemoryConnection(Unshared):
    """See `Connection`. `send` copies the payload."""

    kind = "memory"

    def __init__(self, network: "Network", name: str, peer: str, out: _Stream, into: _Stream):
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
        """See `Connection.greet`: who may connect has been seen to then."""

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

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need be no frame: what a foreign or broken peer does."""
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
        """A peer has connected."""
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


class Network:
    """Joins the transports of a test.

    Args:
        capacity: bytes that each direction of a connection takes before its sender waits.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY):
        self._capacity = capacity
        self._lock = Lock()
        self._ports = count(1)
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._faults: list[Fault] = []

    @contextmanager
    def faults(self, *faults: Fault) -> Iterator[None]:
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
        """Deliver a frame, or what a fault makes of it."""
        with self._lock:
            faults = list(self._faults)
        if not any(fault.strike(frame, sender, receiver, deliver, cut) for fault in faults):
            deliver()

    def listen(self, transport: "MemoryTransport", host: str, port: int) -> MemoryListener:
        """A listener at (host, port); port 0 takes a free one."""
        with self._lock:
            address = (host, port or next(number for number in self._ports if (host, number) not in self._listeners))
            if address in self._listeners:
                raise OSError(f"{host}:{port} is in use")
            listener = self._listeners[address] = MemoryListener(transport, address)
            return listener

    def connect(self, transport: "MemoryTransport", host: str, port: int, peer: str) -> MemoryConnection:
        """Join a transport to the listener at (host, port)."""
        with self._lock:
            listener = self._listeners.get((host, port))
        if listener is None:
            raise PeerLost(peer, f"cannot connect to {host}:{port}: nobody listens there")
        there, back = _Stream(self._capacity), _Stream(self._capacity)
        if listener.transport.token != transport.token:
            raise PeerLost(peer, "who answers there does not know this job's token: it is not of this job")
        listener.arrive(MemoryConnection(self, listener.transport.name, transport.name, back, there))
        return MemoryConnection(self, transport.name, peer, there, back)

    def forget(self, address: tuple[str, int]) -> None:
        """Nobody listens there any more."""
        with self._lock:
            self._listeners.pop(address, None)


class MemoryTransport:
    """See `Transport`.

    Args:
        token: the job's, `core.token.TOKEN_BYTES` long.
        network: that this node is in.
        name: of this node, by which faults are scripted.
    """

    def __init__(self, token: bytes, network: Network, name: str):
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
        raise ProtocolError("JOIN in memory, where a connection has no sockets")
