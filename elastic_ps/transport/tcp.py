"""This module sends frames over TCP (IPv4 and IPv6)."""

import secrets
import socket

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.transport.base import Connection, Listener
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.greeting import answering, called
from elastic_ps.transport.stream import SocketConnection, SocketListener
from elastic_ps.transport.striped import PendingStripes, StripedConnection, joins


def address_of(host: str) -> tuple[socket.AddressFamily, str]:
    """Return the family and the address of a host by its name: of IPv4 where it has one.

    Raises:
        OSError: it has none.
        UnicodeError: it is no name.
    """
    found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, str(address[0])


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens; port 0 takes a free one."""
    family, address = address_of(host)
    return socket.create_server((address, port), family=family, backlog=128)


class TcpTransport:
    """See `Transport`.

    Args:
        token: the job's, `control.token.TOKEN_BYTES` long.
        sockets: of each connection that is made here, at most `striped.MOST_SOCKETS`.
    """

    def __init__(self, token: bytes, sockets: int = 1):
        self._token = token
        self._sockets = sockets
        self._joining = PendingStripes()

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        """See `Transport.listen`."""
        sock = listening_socket(host, port)
        return SocketListener({sock: self.accepted}, sock.getsockname()[:2])

    def accepted(self, sock: socket.socket, peer: str) -> SocketConnection:
        """Return the connection of an accepted socket, which has not greeted yet."""
        return SocketConnection(sock, peer, answering(self._token, sock.getsockname()[1]))

    def joined(self, connection: Connection, frame: Frame) -> Connection | None:
        """See `Transport.joined`."""
        if not isinstance(connection, SocketConnection):
            raise ProtocolError("JOIN has come on a connection that is no socket")
        return self._joining.add(connection, frame)

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> SocketConnection:
        """See `Transport.connect`."""
        if self._sockets == 1:
            return SocketConnection(self._connected(host, port, peer, timeout), peer)
        sockets: list[socket.socket] = []
        try:
            for frame in joins(secrets.token_hex(8), self._sockets):
                sockets.append(self._connected(host, port, peer, timeout))
                SocketConnection(sockets[-1], peer).send(frame)
        except PeerLost:
            for sock in sockets:
                sock.close()
            raise
        return StripedConnection(sockets, peer)

    def _connected(self, host: str, port: int, peer: str, timeout: float) -> socket.socket:
        try:
            sock = socket.create_connection((host, port), timeout=timeout)
        except (OSError, UnicodeError) as error:  # the latter of a name that is no host's
            raise PeerLost(peer, f"cannot connect to {host}:{port}: {error}") from error
        return called(sock, peer, self._token, port, timeout)
