"""The first words on a connection to a server, which may be frozen."""

import threading
from types import SimpleNamespace

import pytest

from elastic_ps.core.configuration import Member, Role
from elastic_ps.core.errors import PeerLost
from elastic_ps.transport import hello
from elastic_ps.transport.frame_metas import HelloMeta
from elastic_ps.transport.frames import Frame


class Frozen:
    """A connection to a server that says nothing."""

    def __init__(self):
        self.broken, self.calls = threading.Event(), []

    def send(self, frame):
        self.calls.append(f"send to {frame.of(HelloMeta).to}")

    def receive(self):
        assert self.broken.wait(20)
        self.calls.append("receive ends")
        raise PeerLost("s0", "connection closed")

    def hang_up(self):
        self.calls.append("hang up")
        self.broken.set()

    def close(self):
        self.calls.append("close")
        self.broken.set()


def test_a_silent_server_is_given_up_and_its_connection_closed_by_who_uses_it(monkeypatch):
    """Else the descriptor that is read from could be another connection's by then."""
    monkeypatch.setattr(hello, "GREETING_SECONDS", 0.01)
    frozen = Frozen()
    transport = SimpleNamespace(connect=lambda *_: frozen)
    frame = Frame(HelloMeta(node="w0", role=Role.WORKER, lane="exchange", to=""))
    with pytest.raises(PeerLost, match=r"has not answered the greeting within 0\.01 s"):
        hello.greeted(transport, Member("s0", Role.SERVER, "127.0.0.1", 1), frame)
    assert frozen.calls == ["send to s0", "hang up", "receive ends", "close"]
