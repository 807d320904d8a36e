"""Pages that anybody may ask for: a bounded number of clients, of whom the idle cost nobody anything."""

import socket
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from urllib.request import urlopen

import pytest

from elastic_ps.system import http_pages
from elastic_ps.system.strangers import MOST_STRANGERS


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_):
        pass


@pytest.fixture
def port():
    server, thread = http_pages.started("127.0.0.1", 0, Answer)
    with http_pages.answered(server, thread) as found:
        yield found


def asked(port):
    with urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
        return answer.read()


def test_pages_do_not_wait_for_a_name_server(monkeypatch):
    """A program whose machine has none that answers began after 10 s or more."""
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("a name is looked up"))
    server, thread = http_pages.started("127.0.0.1", 0, Answer)
    with http_pages.answered(server, thread) as port:
        assert asked(port) == b"here"


@pytest.mark.slow
def test_idle_clients_hold_neither_threads_nor_the_page(port):
    before = threading.active_count()
    with ExitStack() as held:
        crowd = [held.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(200)]
        assert asked(port) == b"here"
        for idle in crowd[: 200 - MOST_STRANGERS]:
            assert idle.recv(1) == b"", "the oldest have gone"
        assert threading.active_count() - before <= MOST_STRANGERS + 5


def test_a_client_that_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(http_pages, "GREETING_SECONDS", 0.2)
    server, thread = http_pages.started("127.0.0.1", 0, Answer)
    with http_pages.answered(server, thread) as port, socket.create_connection(("127.0.0.1", port), 20) as idle:
        idle.sendall(b"GET / HTT")
        assert idle.recv(1) == b""
        assert asked(port) == b"here"


def has_ipv6():
    """Whether this machine can speak with itself so."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return socket.has_dualstack_ipv6()
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("where", ["0.0.0.0:0", "[::]:0"])
def test_all_addresses_are_those_of_both_families(where):
    """A pod of an IPv6 cluster is asked by its only address: its probes failed."""
    listen = http_pages.listening(where, lambda host, port: http_pages.started(host, port, Answer))
    with http_pages.answered(*listen) as port:
        for host in ("127.0.0.1", "[::1]"):
            with urlopen(f"http://{host}:{port}/", timeout=20) as answer:
                assert answer.read() == b"here"


@pytest.mark.parametrize("where", ["0.0.0.0:0", "127.0.0.1:0", "0"])
def test_a_machine_without_ipv6_is_listened_on_all_the_same(monkeypatch, where):
    monkeypatch.setattr(http_pages.socket, "has_dualstack_ipv6", lambda: False)
    listen = http_pages.listening(where, lambda host, port: http_pages.started(host, port, Answer))
    with http_pages.answered(*listen) as port:
        assert asked(port) == b"here"
