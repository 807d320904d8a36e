"""HTTP pages that a program answers beside its work."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from threading import Thread


@contextmanager
def answered(server: HTTPServer, thread: Thread) -> Iterator[int]:
    """A server that a thread runs answers meanwhile, and both end then; yields its port."""
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
