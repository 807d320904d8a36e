"""The data plane's transport in the world: frames, encoded and decoded by production, over the world's network."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.transport.base import Buffer, Connection, Listener, Unshared, flat
from elastic_ps.transport.frames import HEADER_BYTES, Frame, decode, decode_header, encode
from tests.world.network import CLOSED, End, Network, Refused
from tests.world.scheduler import Process, Task
from tests.world.threads import Condition, here

Observer = Callable[[Process, Frame, bytes], None]


class WorldConnection(Unshared):
    """See `Connection`. What one end has sent and the other has not read takes room, as a socket's buffers."""

    kind = "tcp"

    def __init__(self, end: End, peer: str, room: int, observe: Observer):
        self.peer = peer
        self._end, self._room, self._observe = end, room, observe
        self._waiting: list[Task] = []
        self._inbox: deque[bytes] = deque()
        self._why = ""
        self._payload = memoryview(b"")
        self._received = self._sent = 0
        end.took, end.broke = self._took, self._broke

    @property
    def moved(self) -> tuple[int, int]:
        """See `Connection.moved`."""
        return self._received, self._sent

    def _wait(self) -> None:
        self._waiting.append(here.scheduler.current)
        here.scheduler.park()

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            here.scheduler.wake(task)

    def _took(self, item: bytes | None) -> None:
        if item is not None:  # else there is room again
            self._inbox.append(item)
        self._notify()

    def _broke(self, why: str) -> None:
        self._why = self._why or why
        self._notify()

    def greet(self, seconds: float) -> None:
        """See `Connection.greet`: everybody here knows the token."""

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """See `Connection.send`."""
        parts = [flat(part) for part in payload]
        frame.payload_bytes = sum(part.nbytes for part in parts)
        data = b"".join((encode(frame), *parts))
        while not self._why and self._end.unread >= self._room:
            self._wait()
        if self._why:
            raise PeerLost(self.peer, self._why)
        self._end.unread += len(data)
        self._sent += len(data)
        self._observe(self._end.process, frame, data)
        self._end.send(data)

    def receive(self) -> Frame:
        """See `Connection.receive`."""
        while not self._why and not self._inbox:
            self._wait()
        if not self._inbox or self._is_reset():
            raise PeerLost(self.peer, self._why)
        data = self._inbox.popleft()
        self._received += len(data)
        other = self._end.other
        other.unread -= len(data)
        if other.unread < self._room <= other.unread + len(data):
            other.took(None)
        header = decode_header(data)
        start = HEADER_BYTES + header.meta_bytes
        self._payload = memoryview(data)[start:]
        return decode(header, data[HEADER_BYTES:start])

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """See `Connection.receive_into`: the payload may come later than its frame."""
        here.scheduler.pause()
        if self._is_reset():
            raise PeerLost(self.peer, self._why)
        at = 0
        for buffer in buffers:
            view = flat(buffer)
            if view.nbytes:  # else it may be read only
                view[:] = self._payload[at : at + view.nbytes]
                at += view.nbytes

    def _is_reset(self) -> bool:
        """Return whether what has arrived cannot be read any more: it can where the peer has only closed."""
        return self._why not in ("", CLOSED)

    def hang_up(self) -> None:
        """See `Connection.hang_up`."""
        self.close()

    def close(self) -> None:
        """See `Connection.close`."""
        self._end.close()
        self._broke("closed here")


class WorldListener:
    """See `Listener`."""

    def __init__(self, transport: "WorldTransport", process: Process, host: str, port: int):
        self._transport, self._changed = transport, Condition()
        self._came: deque[End] = deque()
        self._closed = False
        self.address = host, transport.network.listen(process, port, self._take)

    def _take(self, end: End) -> None:
        self._came.append(end)
        end.broke = lambda why: None
        early: list[Any] = []
        end.took = early.append
        end.early = early  # type: ignore[attr-defined]
        self._changed.notify_all()

    def accept(self) -> Connection:
        """See `Listener.accept`."""
        with self._changed:
            self._changed.wait_for(lambda: self._came or self._closed)
        if self._closed:
            raise PeerLost("listener", "closed")
        end = self._came.popleft()
        connection = self._transport.made(end, "a stranger")
        for item in end.early:  # type: ignore[attr-defined]
            end.took(item)
        if not end.open:
            end.broke(CLOSED)
        return connection

    def close(self) -> None:
        """See `Listener.close`."""
        self._transport.network.forget(self.address[1])
        self._closed = True
        self._changed.notify_all()


class WorldTransport:
    """See `Transport`.

    Args:
        network: of the world.
        process: whose it is.
        room: bytes that a connection holds in each direction.
        observe: sees each frame that is sent.
    """

    def __init__(self, network: Network, process: Process, room: int, observe: Observer):
        self.network, self._process, self._room, self._observe = network, process, room, observe

    def made(self, end: End, peer: str) -> WorldConnection:
        """Return the connection over an end."""
        return WorldConnection(end, peer, self._room, self._observe)

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        """See `Transport.listen`."""
        return WorldListener(self, self._process, host, port)

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> Connection:
        """See `Transport.connect`."""
        try:
            return self.made(self.network.connect(self._process, port, timeout), peer)
        except Refused as error:
            raise PeerLost(peer, f"cannot connect to {host}:{port}: {error}") from error

    def joined(self, connection: Connection, frame: Frame) -> Connection | None:
        """See `Transport.joined`."""
        raise ProtocolError("a connection of the world has one socket")
