"""What a node reports of its peers, and what it does when it has been away: a real session, a played coordinator."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from elastic_ps.control.token import Door
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError, JobEnded
from elastic_ps.node.peer_watch import PeerView
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from elastic_ps.node.standing import Standing
from elastic_ps.node.vain_wait import VainWait
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

TIMEOUT = 20.0
LEASE = 2.0
TOKEN = bytes(16)


class Coordinator(rpc.CoordinatorServicer):
    """Registers one node, and keeps what it says."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.streams = 0
        self.reports: list[pb.ReportRequest] = []
        self.expelled = False
        self.turns_away = 0  # so many reports, as one does that is just being started
        self.turned_away: list[float] = []  # when
        self.taken: list[float] = []
        self._door = Door(TOKEN)

    def Greet(self, request, context):
        return self._door.greet(context.invocation_metadata())

    def Register(self, request, context):
        return pb.RegisterReply(term=1, node="w0", lease_seconds=LEASE)

    def Listen(self, request, context):
        ended = threading.Event()
        context.add_callback(ended.set)
        with self.changed:
            self.streams += 1
            self.changed.notify_all()
        ended.wait(TIMEOUT)
        yield from ()

    def Report(self, request, context):
        with self.changed:
            if self.expelled:
                context.abort(grpc.StatusCode.NOT_FOUND, "no node 'w0' is registered with this job")
            if len(self.turned_away) < self.turns_away:
                self.turned_away.append(time.monotonic())
                self.changed.notify_all()
                context.abort(grpc.StatusCode.UNAVAILABLE, "the coordinator asks its nodes")
            self.taken.append(time.monotonic())
            self.reports.append(request)
            self.changed.notify_all()
        return pb.ReportReply(term=1)

    def Acknowledge(self, request, context):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "detail: too long")

    def wait(self, ready: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(ready, TIMEOUT)


class Node:
    """As much of a worker as a session needs."""

    def __init__(self) -> None:
        self.apart: dict[str, str] = {}
        self.runs = threading.Event()  # cleared: the process stands still
        self.runs.set()
        self.ended = threading.Event()
        self.reason = ""

    session: Session

    def on_directive(self, directive: pb.Directive) -> None:
        """There are none."""

    def position(self) -> tuple[Standing, int]:
        return Standing("w0"), 0

    def trained(self) -> int:
        return 7

    def report(self) -> pb.ReportRequest:
        return pb.ReportRequest()

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """Nothing is kept."""

    def seen(self) -> PeerView:
        assert self.runs.wait(TIMEOUT)
        return PeerView(apart=self.apart)

    def on_expelled(self, reason: str) -> None:
        self.reason = reason
        self.ended.set()


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def node(coordinator: Coordinator) -> Iterator[Node]:
    server = grpc.server(ThreadPoolExecutor(8))
    rpc.add_CoordinatorServicer_to_server(coordinator, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    session = Session(NodeSettings(f"127.0.0.1:{port}", TOKEN, "127.0.0.1", "nonce"), Role.WORKER)
    made = Node()
    session.register()
    session.run(made)
    made.session = session
    yield made
    made.runs.set()
    session.close()
    server.stop(0)


def test_who_cannot_be_reached_is_reported_until_that_is_mended(coordinator: Coordinator, node: Node) -> None:
    node.apart = {"s1": "connection refused"}
    coordinator.wait(lambda: coordinator.reports and coordinator.reports[-1].waits)
    (wait,) = coordinator.reports[-1].waits
    assert (wait.peer, wait.what, wait.unreachable) == ("s1", "a connection: connection refused", True)
    assert 1.0 <= wait.seconds < TIMEOUT
    node.apart = {}
    coordinator.wait(lambda: not coordinator.reports[-1].waits)


@pytest.mark.slow
def test_a_coordinators_absence_is_no_part_of_a_round_trip(coordinator: Coordinator, node: Node) -> None:
    coordinator.wait(lambda: coordinator.reports)
    coordinator.turns_away = 4  # 0.85 s
    coordinator.wait(lambda: len(coordinator.turned_away) == coordinator.turns_away)
    last = coordinator.turned_away[0]
    coordinator.wait(lambda: len([taken for taken in coordinator.taken if taken > last]) > 1)
    first = next(number for number, taken in enumerate(coordinator.taken) if taken > last)
    assert 0.0 < coordinator.reports[first + 1].rtt_seconds < coordinator.taken[first] - last


@pytest.mark.slow
def test_a_process_that_has_stood_still_listens_anew_and_accuses_nobody(coordinator: Coordinator, node: Node) -> None:
    coordinator.wait(lambda: coordinator.streams and coordinator.reports)
    node.apart = {"s1": "connection refused"}
    node.runs.clear()
    threading.Event().wait(LEASE)  # SIGSTOP: the clock goes on, the process does not
    before, streams = len(coordinator.reports), coordinator.streams
    node.runs.set()
    coordinator.wait(lambda: coordinator.streams > streams)
    coordinator.wait(lambda: len(coordinator.reports) > before)
    assert not coordinator.reports[before].waits


def test_a_process_that_was_expelled_meanwhile_ends_and_says_why(coordinator: Coordinator, node: Node) -> None:
    coordinator.wait(lambda: coordinator.streams and coordinator.reports)
    coordinator.expelled = True
    assert node.ended.wait(TIMEOUT)
    assert "this node was expelled, and its job goes on without it" in node.reason


def test_an_answer_that_is_refused_is_named_with_the_reason(coordinator: Coordinator, node: Node) -> None:
    node.session.acknowledge(pb.SAVED, detail="of many blocks")
    assert node.ended.wait(TIMEOUT)
    assert "the coordinator does not take SAVED of w0: detail: too long" in node.reason


def test_a_node_that_does_not_train_ends_when_its_coordinator_has_been_away_for_long(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """On another machine than that of its coordinator, which was gone, it stayed without end."""
    monkeypatch.setattr("elastic_ps.node.session.VainWait", lambda: VainWait(1.0))
    monkeypatch.setattr("elastic_ps.node.node_calls.CALL_TIMEOUT", 1.0)
    node: Node = request.getfixturevalue("node")
    coordinator.turns_away = 1000
    assert node.ended.wait(TIMEOUT)
    assert "has been away for 24 h, and nothing was trained here meanwhile" in node.reason


@pytest.mark.parametrize("ask", [Session.leave, Session.checkpoint], ids=["leave", "checkpoint"])
def test_a_session_that_is_closed_ends_whoever_still_asks(ask: Callable[[Session], object]) -> None:
    session = Session(NodeSettings("127.0.0.1:1", TOKEN, "127.0.0.1", "nonce"), Role.WORKER)
    session.close()
    with pytest.raises(JobEnded, match="closed"):
        ask(session)


@pytest.mark.parametrize(("head", "body"), [(-1, "text"), (1 << 32, "text"), ("1", "text"), (1, 2), (1, "a\udc80")])
def test_a_command_that_cannot_be_sent_is_refused_with_the_reason(head, body):
    session = Session(NodeSettings("127.0.0.1:1", TOKEN, "127.0.0.1", "nonce"), Role.WORKER)
    try:
        with pytest.raises(ConfigurationError, match=f"command {head!r}: give a number from 0 to 4294967295 and a"):
            session.command(head, body)
    finally:
        session.close()
