"""Frames over TCP sockets (IPv4 and IPv6)."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock

from elastic_ps.core.errors import PeerLost
from elastic_ps.transport.base import Buffer, Connection, Listener, flat
from elastic_ps.transport.frames import HEADER_BYTES, Frame, decode_header, decode_meta, encode

_IOV_MAX = 512  # buffers a sendmsg may take; Linux allows 1024
_SOCKET_BYTES = 4 << 20


class TcpConnection:
    """See `Connection`."""

    def __init__(self, sock: socket.socket, peer: str, token: bytes):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        self._socket = sock
        self._token = token
        self._sending = Lock()
        self._header = bytearray(HEADER_BYTES)
        self.peer = peer

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """See `Connection.send`."""
        parts = [flat(part) for part in payload]
        frame.payload_bytes = sum(part.nbytes for part in parts)
        with self._sending:
            try:
                self._send_all([memoryview(encode(frame, self._token)), *parts])
            except OSError as error:
                raise PeerLost(self.peer, str(error)) from error

    def _send_all(self, parts: list[memoryview]) -> None:
        parts = [part for part in parts if part.nbytes]
        first = 0
        while first < len(parts):
            sent = self._socket.sendmsg(list(islice(parts, first, first + _IOV_MAX)))
            while sent:
                if sent >= parts[first].nbytes:
                    sent -= parts[first].nbytes
                    first += 1
                else:
                    parts[first] = parts[first][sent:]
                    sent = 0

    def receive(self) -> Frame:
        """See `Connection.receive`."""
        self._fill(memoryview(self._header))
        frame, meta_bytes = decode_header(self._header, self._token)
        if meta_bytes:
            meta = bytearray(meta_bytes)
            self._fill(memoryview(meta))
            frame.meta = decode_meta(meta)
        return frame

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """See `Connection.receive_into`."""
        for buffer in buffers:
            self._fill(flat(buffer))

    def _fill(self, view: memoryview) -> None:
        while view.nbytes:
            try:
                got = self._socket.recv_into(view)
            except OSError as error:
                raise PeerLost(self.peer, str(error)) from error
            if not got:
                raise PeerLost(self.peer, "connection closed")
            view = view[got:]

    def close(self) -> None:
        """See `Connection.close`."""
        with suppress(OSError):  # already broken, or a listener: close ends it all the same
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class TcpListener:
    """See `Listener`."""

    def __init__(self, sock: socket.socket, token: bytes):
        self._socket = sock
        self._token = token
        self._closed = False
        self.address: tuple[str, int] = sock.getsockname()[:2]

    def accept(self) -> Connection:
        """See `Listener.accept`."""
        try:
            sock, address = self._socket.accept()
        except OSError as error:
            if self._closed:
                raise PeerLost("listener", "closed") from error
            raise  # no file descriptors left, say: whoever accepts must not take it for the end
        return TcpConnection(sock, f"{address[0]}:{address[1]}", self._token)

    def close(self) -> None:
        """See `Listener.close`."""
        self._closed = True
        with suppress(OSError):  # already broken, or a listener: close ends it all the same
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class TcpTransport:
    """See `Transport`.

    Args:
        token: the job's, `core.token.TOKEN_BYTES` long.
    """

    def __init__(self, token: bytes):
        self._token = token

    def listen(self, host: str, port: int = 0) -> Listener:
        """See `Transport.listen`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return TcpListener(socket.create_server((host, port), family=family, backlog=128), self._token)

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> Connection:
        """See `Transport.connect`."""
        try:
            sock = socket.create_connection((host, port), timeout=timeout)
        except OSError as error:
            raise PeerLost(peer, f"cannot connect to {host}:{port}: {error}") from error
        sock.settimeout(None)
        return TcpConnection(sock, peer, self._token)
