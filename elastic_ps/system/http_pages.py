"""This module serves the HTTP pages that a program answers beside its work."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.process.file_descriptors import SCARCE, Spare
from elastic_ps.system.strangers import GREETING_SECONDS, Strangers

_HERE = "127.0.0.1"
_EVERYWHERE = ("0.0.0.0", "::")
"""Addresses that mean all of this machine, of both families: so gRPC takes them, too."""
MOST_PORT = 65535


def listening(where: str, listen: Callable[[str, int], tuple[HTTPServer, Thread]]) -> tuple[HTTPServer, Thread]:
    """Start a server where an option says, and return it with the thread that runs it.

    Args:
        where: ADDRESS:PORT, as in 0.0.0.0:80 or [fd00::1]:80, or PORT of this machine alone; port 0: a free one.
        listen: starts the server at an address and a port.

    Raises:
        ConfigurationError: `where` is neither, or the port cannot be had; the message begins with it.
    """
    address, _, port = where.rpartition(":")
    try:
        if not (port.isdecimal() and int(port) <= MOST_PORT):
            raise ValueError(f"{port!r} is no port, a number up to {MOST_PORT}")
        return listen(address.strip("[]") or _HERE, int(port))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{where}: {error}; give PORT or ADDRESS:PORT, port 0 for a free one") from error


class BoundedHTTPServer(ThreadingHTTPServer):
    """A `BoundedHTTPServer` answers whoever asks: at most `MOST_STRANGERS` clients at once; the oldest goes first.

    A client that says nothing for `GREETING_SECONDS` is disconnected. Without descriptors the newcomer is.

    Args:
        host: address to listen on; 0.0.0.0 or :: are all of this machine, by IPv6 too where it has that.
        port: 0 takes a free one.
        handler: answers requests.
    """

    request_queue_size = 128
    """Clients that may knock at the same time; of those beyond, each knocks again after a second, then 2, 4, ..."""

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]):
        self._both = host in _EVERYWHERE and socket.has_dualstack_ipv6()
        host = "::" if self._both else host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._guests: Strangers[socket.socket] = Strangers(_hang_up)
        self._spare = Spare()
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind, to both families where all are meant.

        Nobody is asked what this host is called, as `HTTPServer` does: a name server may be long in coming.
        """
        if self._both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a client. Whoever calls takes an error to mean that there is none."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in SCARCE:
                self._spare.turn_away(self.socket)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread of its own."""
        request.settimeout(GREETING_SECONDS)
        self._guests.enter(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Say goodbye to a client."""
        self._guests.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that breaks off, or is turned out, is no news."""

    def server_close(self) -> None:
        """End it."""
        super().server_close()
        self._spare.close()


def _hang_up(client: socket.socket) -> None:
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)  # its thread closes it


def started(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> tuple[HTTPServer, Thread]:
    """Start a server and the thread that runs it; return both.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        handler: answers requests.

    Raises:
        OSError: the port cannot be had.
    """
    server = BoundedHTTPServer(host, port, handler)
    thread = Thread(target=server.serve_forever, name="pages", daemon=True)
    thread.start()
    return server, thread


@contextmanager
def answered(server: HTTPServer, thread: Thread) -> Iterator[int]:
    """Yield the port of a server that a thread runs; both end with the `with` block."""
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
