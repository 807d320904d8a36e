"""The data plane's transport in the world: frames, encoded and decoded by production, over the world's network."""

import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from os import dup
from typing import Any

import numpy as np

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.core.segments import Raw
from elastic_ps.native.library import address
from elastic_ps.transport.base import Buffer, Connection, Listener, flat
from elastic_ps.transport.frames import HEADER_BYTES, Frame, decode, decode_header, encode
from elastic_ps.transport.shared_memory import Image
from elastic_ps.transport.shared_payloads import SharedPayloads
from tests.world.kernel.scheduler import Process, Task
from tests.world.kernel.threads import Condition, here
from tests.world.network.network import CLOSED, End, Network, Refused
from tests.world.programs import Watch

_LATE_PAYLOADS = 0.2
"""Of payloads that travel where memory is shared."""

_NO_ROOM = 0.2
"""Of frames for which a socket's buffers have none at the moment."""


@dataclass(slots=True)
class Sent:
    """What one end sends and the other receives.

    Attributes:
        data: the frame, and its payload where that travels.
        lying: checksum of the payload that lies in shared memory.
        images: the receiver's, of the memory that is shared from now on.
    """

    data: bytes
    lying: int = 0
    images: Sequence[Image] = ()


class WorldConnection:
    """See `Connection`. What one end has sent and the other has not read takes room, as a socket's buffers.

    Processes of one host share memory, as production does: the images are real ones, which each end maps for itself.
    """

    reason = ""

    def __init__(self, end: End, peer: str, transport: "WorldTransport"):
        self.peer = peer
        self.end, self._transport, self._room = end, transport, transport.room
        self._can_share = transport.network.are_together(end.process, end.other.process)
        self.kind = "shm" if self._can_share else "tcp"
        self._payloads = SharedPayloads()
        self._images: Sequence[Image] = ()  # of the peer, to go with the next frame
        self.frame: Any = None  # that came last
        self._lying = 0
        self._waiting: list[Task] = []
        self._inbox: deque[Sent] = deque()
        self._why = ""
        self._payload = memoryview(b"")
        self._received = self._sent = 0
        end.took, end.broke = self._took, self._broke

    @property
    def moved(self) -> tuple[int, int]:
        """See `Connection.moved`."""
        return self._received, self._sent

    @property
    def shared(self) -> Sequence[Image]:
        """See `Connection.shared`."""
        return self._payloads.shared

    def _wait(self) -> None:
        self._waiting.append(here.scheduler.current)
        here.scheduler.park()

    def _notify(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for task in waiting:
                here.scheduler.wake(task)

    def _took(self, item: Sent | None) -> None:
        if item is not None:  # else there is room again
            self._inbox.append(item)
        self._notify()

    def _broke(self, why: str) -> None:
        self._why = self._why or why
        self._notify()

    def greet(self, seconds: float) -> None:
        """See `Connection.greet`: everybody here knows the token."""

    def share(self, writable: Image, readable: Sequence[Image]) -> None:
        """See `Connection.share`."""
        if self._can_share:
            self._payloads.shared = (writable, *readable)
            own = Image.attached(dup(writable.descriptor), writable=True)
            self._images = (own, *(Image.attached(image.read_only(), writable=False) for image in readable))

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """See `Connection.send`."""
        while not self._why and self.end.unread >= self._room:
            self._wait()
        if self._why:
            raise PeerLost(self.peer, self._why)
        self._send(frame, payload)

    def offer(self, frame: Frame, payload: Sequence[Buffer] = ()) -> bool:
        """See `Connection.offer`: the room that there is may be used by then."""
        if self._why or self.end.unread >= self._room or here.scheduler.random.random() < _NO_ROOM:
            return False
        self._send(frame, payload)
        return True

    def _send(self, frame: Frame, payload: Sequence[Buffer]) -> None:
        parts = [flat(part) for part in payload]
        lying = self._payloads.lying_there(frame, parts)
        if lying is not None:
            frame = lying
            item = Sent(encode(frame), _checksum(parts))
        else:
            frame.payload_bytes = sum([part.nbytes for part in parts])
            item = Sent(b"".join((encode(frame), *parts)) if parts else encode(frame))
        end, size = self.end, len(item.data)
        if self._images:
            item.images, self._images = self._images, ()
        end.unread += size
        self._sent += size
        self._transport.watch.sent(end.process, frame, parts)
        end.send(item)

    def receive(self) -> Frame:
        """See `Connection.receive`."""
        while not self._why and not self._inbox:
            self._wait()
        if not self._inbox or self._is_reset():
            raise PeerLost(self.peer, self._why)
        item = self._inbox.popleft()
        data, other = item.data, self.end.other
        size = len(data)
        self._received += size
        other.unread -= size
        if other.unread < self._room <= other.unread + size:
            other.took(None)
        header = decode_header(data)
        start = HEADER_BYTES + header.meta_bytes
        self._payload, self._lying = memoryview(data)[start:], item.lying
        if item.images:
            self._payloads.shared = item.images
        self.frame = decode(header, data[HEADER_BYTES:start])
        self._payloads.begin(self.frame)
        return self.frame

    def image_at(self, places: Sequence[slice]) -> Image | None:
        """See `Connection.image_at`."""
        return self._payloads.image_at(places)

    def lying(self) -> Sequence[Raw]:
        """See `Connection.lying`."""
        return self._payloads.lying

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """See `Connection.receive_into`: the payload may come later than its frame."""
        if self._can_share and self._payload and here.scheduler.random.random() < _LATE_PAYLOADS:
            here.scheduler.park(self._transport.network.latency(self.end.other.process, self.end.process))
        else:
            here.scheduler.pause()
        if self._is_reset():
            raise PeerLost(self.peer, self._why)
        lying = list(self._payloads.lying)
        if self._payloads.take(buffers):
            self._check(lying, buffers)
            return
        at = 0
        for buffer in buffers:
            view = flat(buffer)
            if view.nbytes:  # else it may be read only
                view[:] = self._payload[at : at + view.nbytes]
                at += view.nbytes

    def _check(self, lying: Sequence[Raw], buffers: Sequence[Buffer]) -> None:
        """Tell of a payload that is used where it lies and is not what was sent; one that is copied may be dropped."""
        places = {address(part) for part in lying}
        if all(address(np.asarray(flat(buffer))) in places for buffer in buffers) and _checksum(lying) != self._lying:
            self._transport.watch.overwritten(self.end.process, self.end.other.process, self.frame)

    def _is_reset(self) -> bool:
        """Return whether what has arrived cannot be read any more: it can where the peer has only closed."""
        return self._why not in ("", CLOSED)

    def hang_up(self) -> None:
        """See `Connection.hang_up`."""
        self.close()

    def close(self) -> None:
        """See `Connection.close`."""
        self.end.close()
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
        connection = WorldConnection(end, "a stranger", self._transport)
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
        watch: sees each frame that is sent.
    """

    def __init__(self, network: Network, process: Process, room: int, watch: Watch):
        self.network, self._process, self.room, self.watch = network, process, room, watch

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        """See `Transport.listen`."""
        return WorldListener(self, self._process, host, port)

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> Connection:
        """See `Transport.connect`."""
        try:
            return WorldConnection(self.network.connect(self._process, port, timeout), peer, self)
        except Refused as error:
            raise PeerLost(peer, f"cannot connect to {host}:{port}: {error}") from error

    def joined(self, connection: Connection, frame: Frame) -> Connection | None:
        """See `Transport.joined`."""
        raise ProtocolError("a connection of the world has one socket")


def _checksum(parts: Sequence[Buffer]) -> int:
    found = 0
    for part in parts:
        found = zlib.crc32(part, found)
    return found
