"""This module sends frames over stream sockets."""

import errno
import logging
import os
import select
import socket
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock

from elastic_ps.core.errors import PeerLost
from elastic_ps.system.process.file_descriptors import SCARCE, Spare
from elastic_ps.system.strangers import CountedLog
from elastic_ps.transport.base import Buffer, Unshared, flat
from elastic_ps.transport.frames import HEADER_BYTES, Frame, decode, decode_header, encode

log = logging.getLogger(__name__)

_IOV_MAX = 512  # buffers a sendmsg may take; Linux allows 1024
_SOCKET_BYTES = 4 << 20
_SMALL_BYTES = 64 << 10  # sent by whoever has them: to wake a thread would cost more
_REFUSED_SECONDS = 0.1  # to wait where none can be accepted: the next try may well end as this one
_UNHEARD = frozenset(
    {
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET),
        *(errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EPERM),
    }
)
"""What Linux's accept says of the connection that waits, a firewall's refusal included: the next one may be let in."""

Greet = Callable[[socket.socket, str, float], None]
"""A `Greet` greets on a socket, with a peer of that name, in so many seconds."""

_KEEPALIVE = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 4, socket.TCP_USER_TIMEOUT: 10_000}
"""A path that has gone without a reset breaks its connection within some 10 s (the last is in ms, the others in s or
times), whether anything is under way on it or not: as long as a lease by default."""


class SocketConnection(Unshared):
    """See `Connection`.

    Args:
        sock: connected.
        peer: its name.
        greet: has the peer prove in so many seconds that it is of this job; None: it has.
    """

    kind = "tcp"

    def __init__(self, sock: socket.socket, peer: str, greet: Greet | None = None):
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        self._socket = sock
        self._greet = greet
        self._sending = Lock()
        self._received = self._sent = 0
        self._unsent: list[int] = []  # descriptors that go with the next frame
        self._rest: list[memoryview] = []  # of a frame that `offer` has begun
        self._header = bytearray(HEADER_BYTES)
        self.peer = peer

    def greet(self, seconds: float) -> None:
        """See `Connection.greet`."""
        if self._greet is not None:
            self._greet(self._socket, self.peer, seconds)
            self._greet = None

    @property
    def moved(self) -> tuple[int, int]:
        """See `Connection.moved`."""
        return self._received, self._sent

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """See `Connection.send`."""
        parts = [flat(part) for part in payload]
        frame.payload_bytes = sum(part.nbytes for part in parts)
        self._send_frame(frame, parts)

    def offer(self, frame: Frame, payload: Sequence[Buffer] = ()) -> bool:
        """See `Connection.offer`."""
        parts = [flat(part) for part in payload]
        frame.payload_bytes = sum(part.nbytes for part in parts)
        return frame.payload_bytes <= _SMALL_BYTES and self._offer_frame(frame, parts)

    def _offer_frame(self, frame: Frame, parts: Sequence[memoryview]) -> bool:
        with self._sending:
            if self._unsent:
                return False
            rest = [memoryview(encode(frame)), *(part for part in parts if part.nbytes)]
            try:
                sent = self._socket.sendmsg(rest[:_IOV_MAX], (), socket.MSG_DONTWAIT)
            except OSError:  # no room, or broken: `send` finds out
                return False
            self._sent += sent
            self._rest = _after(rest, sent)
            return not self._rest

    def _send_frame(self, frame: Frame, parts: Sequence[memoryview]) -> None:
        with self._sending:
            descriptors, self._unsent = self._unsent, []
            begun, self._rest = self._rest, []
            try:
                self._send_all(begun or [memoryview(encode(frame)), *parts], descriptors)
            except OSError as error:
                raise PeerLost(self.peer, str(error)) from error
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def send_raw(self, parts: Sequence[memoryview]) -> None:
        """Send bytes that are part of no frame on this socket. Raises OSError."""
        self._send_all(list(parts), ())

    def detached(self) -> socket.socket:
        """Return the socket, which the caller owns from now on."""
        return self._socket

    def _send_all(self, parts: list[memoryview], descriptors: Sequence[int]) -> None:
        parts = [part for part in parts if part.nbytes]
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        while parts:
            sent = self._socket.sendmsg(parts[:_IOV_MAX], beside)
            beside = []
            self._sent += sent
            parts = _after(parts, sent)

    def receive(self) -> Frame:
        """See `Connection.receive`."""
        self._fill(memoryview(self._header))
        header = decode_header(self._header)
        meta = bytearray(header.meta_bytes)
        self._fill(memoryview(meta))
        return decode(header, meta)

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """See `Connection.receive_into`."""
        for buffer in buffers:
            self._fill(flat(buffer))

    def _fill(self, view: memoryview) -> None:
        while view.nbytes:
            try:
                got = self._take(view)
            except OSError as error:
                raise PeerLost(self.peer, str(error)) from error
            if not got:
                raise PeerLost(self.peer, "connection closed")
            self._received += got
            view = view[got:]

    def _take(self, view: memoryview) -> int:
        """Receive what there is, at least a byte; 0: the connection has ended."""
        return self._socket.recv_into(view)

    def hang_up(self) -> None:
        """See `Connection.hang_up`."""
        with suppress(OSError):  # already broken
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See `Connection.close`."""
        self.hang_up()
        self._socket.close()
        unsent, self._unsent = self._unsent, []
        for descriptor in unsent:
            os.close(descriptor)


def _after(parts: list[memoryview], sent: int) -> list[memoryview]:
    """Return what is left of parts, of which none is empty, when so many bytes are sent."""
    for number, part in enumerate(parts):
        if sent < part.nbytes:
            return [part[sent:], *parts[number + 1 :]]
        sent -= part.nbytes
    return []


Accepted = Callable[[socket.socket, str], SocketConnection]
"""Makes a connection of an accepted socket and the peer's address."""


class SocketListener:
    """See `Listener`.

    Args:
        sockets: on which it listens, and what to make of whom each accepts.
        address: see `Listener.address`.
    """

    def __init__(self, sockets: Mapping[socket.socket, Accepted], address: tuple[str, int]):
        self.address = address
        self._accepted = {sock.fileno(): (sock, accepted) for sock, accepted in sockets.items()}
        self._closed = False
        self._spare = Spare()
        self._strangers = CountedLog(log)
        self._poll = select.poll()
        for sock in sockets:
            sock.setblocking(False)
            self._poll.register(sock, select.POLLIN)

    def accept(self) -> SocketConnection:
        """See `Listener.accept`."""
        while not self._closed:
            for number, _ in self._poll.poll():
                if (connection := self._accept(*self._accepted[number])) is not None:
                    return connection
        raise PeerLost("listener", "closed")

    def _accept(self, listening: socket.socket, accepted: Accepted) -> SocketConnection | None:
        try:
            sock, address = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # who knocked has gone again
            return None
        except OSError as error:
            if self._closed:
                raise PeerLost("listener", "closed") from error
            if error.errno not in SCARCE | _UNHEARD:
                raise
            self._strangers.warning("a connection was turned away: %s", error)
            if error.errno in SCARCE:
                self._spare.turn_away(listening)
            time.sleep(_REFUSED_SECONDS)
            return None
        sock.setblocking(True)
        return accepted(sock, f"{address[0]}:{address[1]}" if address else "a process of this host")

    def close(self) -> None:
        """See `Listener.close`."""
        self._closed = True
        for sock, _ in self._accepted.values():
            with suppress(OSError):  # already broken
                sock.shutdown(socket.SHUT_RDWR)  # ends a blocked poll, which close alone would not
            sock.close()
        self._spare.close()
