"""This module makes one connection of several TCP sockets, each with a thread of its own at both ends."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.native.daemon_threads import DaemonThreads
from elastic_ps.system.strangers import MOST_STRANGERS
from elastic_ps.transport.base import Buffer, flat
from elastic_ps.transport.frame_metas import JoinMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.json_checks import short
from elastic_ps.transport.stream import SocketConnection

MOST_SOCKETS = 16
_STRIPED_BYTES = 1 << 20  # a smaller payload goes by the first socket: waking threads would cost more than it saves
_JOIN_SECONDS = 30.0


class StripedConnection(SocketConnection):
    """See `Connection`: frames go by the first socket, payloads from 1 MiB on in equal parts by all.

    Args:
        sockets: connected to one peer, in the order that both ends know.
        peer: its name.

    Raises:
        PeerLost: the system gives no threads; the sockets are closed.
    """

    def __init__(self, sockets: Sequence[socket.socket], peer: str):
        super().__init__(sockets[0], peer)
        self._others = [SocketConnection(sock, peer) for sock in sockets[1:]]
        self._threads: list[DaemonThreads] = []
        try:
            for kind in ("send", "receive"):
                self._threads.append(DaemonThreads(len(self._others), f"stripe-{kind}-{peer}"))
        except RuntimeError as error:
            self.close()
            raise PeerLost(peer, f"{len(sockets)} sockets take as many threads: {error}") from error
        self._senders, self._receivers = self._threads
        self.reason = f"{len(sockets)} sockets"

    @property
    def moved(self) -> tuple[int, int]:
        """See `Connection.moved`."""
        parts = [super().moved, *(other.moved for other in self._others)]
        return sum(received for received, _ in parts), sum(sent for _, sent in parts)

    def _offer_frame(self, frame: Frame, parts: Sequence[memoryview]) -> bool:
        return frame.payload_bytes < _STRIPED_BYTES and super()._offer_frame(frame, parts)

    def _send_all(self, parts: list[memoryview], descriptors: Sequence[int]) -> None:
        head, *payload = parts
        own, *theirs = self._stripes(payload)
        works = [partial(other.send_raw, stripe) for other, stripe in zip(self._others, theirs, strict=False)]
        self._at_once(self._senders, works, lambda: super(StripedConnection, self)._send_all([head, *own], descriptors))

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """See `Connection.receive_into`."""
        own, *theirs = self._stripes([flat(buffer) for buffer in buffers])
        works = [partial(other.receive_into, stripe) for other, stripe in zip(self._others, theirs, strict=False)]
        self._at_once(self._receivers, works, lambda: super(StripedConnection, self).receive_into(own))

    def _stripes(self, parts: Sequence[memoryview]) -> list[list[memoryview]]:
        """Return what goes by each socket."""
        total = sum(part.nbytes for part in parts)
        return _cut(parts, -(-total // (len(self._others) + 1))) if total >= _STRIPED_BYTES else [list(parts)]

    def _at_once(self, pool: DaemonThreads, works: Sequence[Callable[[], None]], own: Callable[[], None]) -> None:
        """Do `works` in threads and `own` in this one; once one fails, all are ended before its error is raised."""
        try:
            under_way = [pool.submit(work) for work in works]
        except RuntimeError as error:
            raise PeerLost(self.peer, "closed here") from error
        try:
            own()
            for work in under_way:
                work.result()
        except (OSError, PeerLost):
            self._shut()  # the memory of the others' parts may be used again after this
            wait(under_way)
            raise

    def _shut(self) -> None:
        super().close()
        for other in self._others:
            other.close()

    def hang_up(self) -> None:
        """See `Connection.hang_up`."""
        super().hang_up()
        for other in self._others:
            other.hang_up()

    def close(self) -> None:
        """See `Connection.close`."""
        self._shut()
        for threads in self._threads:
            threads.close()


def _cut(parts: Sequence[memoryview], size: int) -> list[list[memoryview]]:
    """Cut parts into consecutive pieces of `size` bytes each, the last of what is left."""
    pieces: list[list[memoryview]] = [[]]
    room = size
    for whole in parts:
        part = whole
        while part.nbytes:
            if not room:
                pieces.append([])
                room = size
            pieces[-1].append(part[:room])
            part, room = part[room:], max(0, room - part.nbytes)
    return pieces


def joins(name: str, sockets: int) -> list[Frame]:
    """Return the first frame on each socket of a connection, by which the accepting end puts it together."""
    return [Frame(JoinMeta(connection=name, part=part, of=sockets)) for part in range(sockets)]


class PendingStripes:
    """A `PendingStripes` keeps accepted sockets of connections that are not complete yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[float, dict[int, SocketConnection]]] = {}

    def add(self, connection: SocketConnection, frame: Frame) -> StripedConnection | None:
        """Take a socket on which `frame`, a JOIN, came; return the connection if it is complete with it.

        Raises:
            ProtocolError: the frame is not as `joins` makes them.
        """
        join = frame.of(JoinMeta)
        name, part, of = join.connection, join.part, join.of
        if not (2 <= of <= MOST_SOCKETS and 0 <= part < of):
            raise ProtocolError(f"JOIN names part {part} of {of}, but 2 to {MOST_SOCKETS} sockets make a connection")
        with self._lock:
            if part in self._waiting.get(name, (0.0, {}))[1]:
                raise ProtocolError(f"JOIN names part {part} of connection {short(name)} twice")
            if name not in self._waiting:
                self._make_room()
            parts = self._waiting.setdefault(name, (time.monotonic(), {}))[1]
            parts[part] = connection
            if set(parts) != set(range(of)):
                return None
            del self._waiting[name]
        sockets = [parts[number].detached() for number in range(of)]
        return StripedConnection(sockets, connection.peer)

    def _make_room(self) -> None:
        """Close what was never completed, as its other end has gone, and the oldest where too many wait."""
        for name, (since, parts) in list(self._waiting.items()):
            if time.monotonic() - since > _JOIN_SECONDS or len(self._waiting) >= MOST_STRANGERS:
                del self._waiting[name]
                for connection in parts.values():
                    connection.close()
