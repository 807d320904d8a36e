"""Frames over TCP (IPv4 and IPv6)."""

import socket

from elastic_ps.core.errors import PeerLost
from elastic_ps.transport.base import Listener
from elastic_ps.transport.stream import SocketConnection, SocketListener


def listening_socket(host: str, port: int) -> socket.socket:
    """One of TCP's; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


class TcpTransport:
    """See `Transport`.

    Args:
        token: the job's, `core.token.TOKEN_BYTES` long.
    """

    def __init__(self, token: bytes):
        self._token = token

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        """See `Transport.listen`."""
        sock = listening_socket(host, port)
        return SocketListener({sock: self.accepted}, sock.getsockname()[:2])

    def accepted(self, sock: socket.socket, peer: str) -> SocketConnection:
        """A connection of an accepted socket."""
        return SocketConnection(sock, peer, self._token)

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> SocketConnection:
        """See `Transport.connect`."""
        try:
            sock = socket.create_connection((host, port), timeout=timeout)
        except OSError as error:
            raise PeerLost(peer, f"cannot connect to {host}:{port}: {error}") from error
        sock.settimeout(None)
        return SocketConnection(sock, peer, self._token)
