"""HTTP pages that a program answers beside its work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from threading import Thread

from elastic_ps.core.errors import ConfigurationError

_HERE = "127.0.0.1"
_MOST_PORT = 65535


def listening(where: str, listen: Callable[[str, int], tuple[HTTPServer, Thread]]) -> tuple[HTTPServer, Thread]:
    """A server where an option says.

    Args:
        where: ADDRESS:PORT, or PORT of this machine alone; port 0: a free one.
        listen: starts it at an address and a port.

    Raises:
        ConfigurationError: it is neither, or cannot be had; the message begins with it.
    """
    address, _, port = where.rpartition(":")
    try:
        if not (port.isdecimal() and int(port) <= _MOST_PORT):
            raise ValueError(f"{port!r} is no port, a number up to {_MOST_PORT}")
        return listen(address or _HERE, int(port))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{where}: {error}; give PORT or ADDRESS:PORT, port 0 for a free one") from error


@contextmanager
def answered(server: HTTPServer, thread: Thread) -> Iterator[int]:
    """A server that a thread runs answers meanwhile, and both end then; yields its port."""
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
