"""A worker's connections: one to each server, made in whatever thread comes first, and mended."""

import threading

import pytest

from elastic_ps.core.configuration import Member, Role
from elastic_ps.core.errors import ConfigurationError, JobEnded
from elastic_ps.testing.memory_transport import MemoryNetwork, MemoryTransport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, NoticeMeta, RefusedMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.worker.wire.server_connections import ServerConnections
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import TIMEOUT, TOKEN, PlayedServer
from tests.elastic_ps.worker.worker_harness import TWO, Play


class Owner:
    def __init__(self):
        self.members = {}
        self.lost = []
        self.changed = threading.Condition()
        self.connections = 0

    def hello(self):
        return Frame(HelloMeta(node="w0", role="worker", lane="exchange"))

    def buffers(self, link, frame):
        return [bytearray(frame.payload_bytes)]

    def arrived(self, link, frame):
        """Nothing is kept."""

    def wanted(self, server):
        return self.members.get(server)

    def connected(self, server):
        with self.changed:
            self.connections += 1
            self.changed.notify_all()

    def disconnected(self, server, reason):
        with self.changed:
            self.lost.append((server, reason))
            self.changed.notify_all()

    def wait(self, ready):
        with self.changed:
            assert self.changed.wait_for(ready, TIMEOUT)


@pytest.fixture
def network():
    return MemoryNetwork()


@pytest.fixture
def server(network):
    made = PlayedServer("s0", network)
    yield made
    made.close()


@pytest.fixture
def owner(server):
    made = Owner()
    made.members["s0"] = server.member
    return made


@pytest.fixture
def peers(network, owner):
    made = ServerConnections(MemoryTransport(TOKEN, network, "w0"), owner)
    yield made
    owner.members.clear()
    made.keep_only(())


def test_two_threads_that_need_a_server_make_one_connection(peers, server, owner):
    server.greeting.clear()
    peers.ensure(server.member)  # waits for nobody
    server.wait(lambda: server.greeted_by)
    peers.ensure(server.member)
    server.greeting.set()
    owner.wait(lambda: owner.connections)
    peers.ensure(server.member)
    assert owner.connections == 1
    assert len(server.connections) == 1
    assert not owner.lost


def test_a_server_that_accepts_and_says_nothing_does_not_hold_up_its_caller(peers, server, owner, monkeypatch):
    monkeypatch.setattr("elastic_ps.transport.hello.GREETING_SECONDS", 0.01)
    server.greeting.clear()
    peers.ensure(server.member)
    owner.wait(lambda: owner.lost)
    monkeypatch.setattr("elastic_ps.transport.hello.GREETING_SECONDS", TIMEOUT)
    server.greeting.set()
    owner.wait(lambda: owner.connections)
    assert {name for name, _reason in owner.lost} == {"s0"}


@pytest.mark.parametrize("name", ["greeting-s0", "send-s0", "receive-s0", "connect-s0"])
def test_a_connection_for_which_no_thread_can_be_started_is_opened_later(peers, server, owner, monkeypatch, name):
    """The script has used them up for the moment. Nobody would try again."""
    start, refused = threading.Thread.start, []

    def scarce(thread):
        if thread.name == name and not refused and (name != "connect-s0" or owner.connections):
            refused.append(name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    peers.ensure(server.member)
    owner.wait(lambda: owner.connections)
    assert bool(refused) == (name != "connect-s0")
    server.connections[-1].close()
    owner.wait(lambda: owner.connections == 2)
    assert refused == [name]
    link = peers.link("s0")
    link.probe()
    server.wait(lambda: server.of(Kind.PING))


def test_a_server_that_refuses_is_named_with_its_reason(network, peers, owner):
    listener = MemoryTransport(TOKEN, network, "s1").listen("s1")
    member = owner.members["s1"] = Member("s1", Role.SERVER, *listener.address)
    peers.ensure(member)
    connection = listener.accept()
    connection.receive()
    connection.send(Frame(RefusedMeta(detail="w0 was declared dead")))
    owner.wait(lambda: owner.lost)
    assert peers.apart == {"s1": "refused: w0 was declared dead"}
    assert owner.lost == [("s1", "lost s1: refused: w0 was declared dead")]
    owner.members.clear()
    listener.close()


def test_a_foreign_jobs_server_is_not_taken_for_ours(network, peers, owner):
    listener = MemoryTransport(b"x" * 16, network, "s1").listen("s1")
    member = owner.members["s1"] = Member("s1", Role.SERVER, *listener.address)
    peers.ensure(member)
    owner.wait(lambda: owner.lost)
    assert owner.lost == [
        ("s1", "lost s1: whoever answers there does not know this job's token, and is not part of it"),
    ]
    owner.members.clear()
    listener.close()


def test_a_server_that_nobody_needs_any_more_is_not_sought(peers, server, owner):
    peers.ensure(server.member)
    owner.wait(lambda: owner.connections)
    owner.members.clear()
    server.connections[0].close()
    peers.flush(TIMEOUT)
    assert not owner.lost


def test_flush_returns_once_queued_frames_are_sent(peers, server, owner):
    peers.ensure(server.member)
    owner.wait(lambda: owner.connections)
    for number in range(5):
        peers.send("s0", Frame(NoticeMeta(), version=number))
    peers.send("s9", Frame(NoticeMeta()))  # unknown: dropped
    peers.flush(TIMEOUT)
    server.await_frames(Kind.NOTICE, 5)
    assert [item.frame.version for item in server.received] == [0, 1, 2, 3, 4]


def test_committed_closes_what_the_configuration_does_not_need():
    play = Play()
    play.start([0] * 6)
    s1 = play.servers["s1"]
    s1.await_connections(1)
    alone = play.configuration(2, [0] * 6, servers=("s0",))
    play.prepare(alone)
    play.adopt(alone)
    assert s1.await_frames(Kind.NOTICE, number=TWO)
    play.direct(committed=pb.Committed(configuration=pb.ConfigId(term=1, number=2)))
    s1.wait(lambda: s1.ended)
    assert not play.failed
    play.close()


@pytest.mark.parametrize(
    ("finished", "ended", "says"),
    [
        (True, None, True),
        (False, JobEnded("stopped by the operator", 0), True),
        (False, None, False),
        (False, ConfigurationError("a refusal"), False),
    ],
    ids=["finished", "stopped", "crashed", "refused"],
)
def test_a_worker_that_ends_in_order_says_goodbye(finished, ended, says):
    play = Play(servers=("s0",))
    play.begin(["w0"])
    server = play.servers["s0"]
    if ended is not None:
        play.node.end(ended)
    play.node.close(finished)
    server.wait(lambda: server.ended)
    assert len(server.of(Kind.GOODBYE)) == says
    play.close()
