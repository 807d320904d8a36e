"""This module answers the probes of Kubernetes, and whatever else a process shows by HTTP beside its work."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from elastic_ps.system.http_pages import answered, listening, started


@dataclass(frozen=True)
class HttpPage:
    """A `HttpPage` is what a process answers to one question.

    Attributes:
        body: of the answer.
        status: of the answer, by HTTP.
        content_type: of the body; "": not said.
    """

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = ""


def probe_page(trouble: str) -> HttpPage:
    """Return the answer to a probe.

    Args:
        trouble: what is wrong, for people; "": nothing.
    """
    return HttpPage(f"{trouble or 'ok'}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK)


@contextmanager
def answering(where: str, pages: Mapping[str, Callable[[], HttpPage]]) -> Iterator[int]:
    """Answer by HTTP meanwhile; yield the port.

    Args:
        where: ADDRESS:PORT, or PORT of this machine alone; port 0: a free one.
        pages: what is answered, by path; each is called from a thread of its own.

    Raises:
        ConfigurationError: `where` is no address, or cannot be had.
    """

    class _Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            make = pages.get(self.path)
            page = make() if make else HttpPage(b"not found\n", HTTPStatus.NOT_FOUND)
            self.send_response(page.status)
            if page.content_type:
                self.send_header("Content-Type", page.content_type)
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, *_: object) -> None:
            """Say nothing: probes are no news."""

    server, thread = listening(where, lambda host, port: started(host, port, _Handler))
    with answered(server, thread) as port:
        yield port
