"""A channel leaves a connection on which somebody else than a coordinator has answered, and one that leads nowhere."""

import socket
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import grpc
import pytest

from elastic_ps.control import channels
from elastic_ps.control.channels import (
    EarlierCoordinator,
    NotTheCoordinator,
    address_of,
    coordinator_channel,
    is_address,
)
from elastic_ps.control.token import Door
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

SECONDS = 20.0
TOKEN = bytes(range(16))


class Coordinator(rpc.CoordinatorServicer):
    """As much of one as is asked here."""

    def Status(self, request, context):
        return pb.StatusReply(job="digits")

    def __init__(self):
        self.goes_on = threading.Event()
        self.door = Door(TOKEN)
        self.is_earlier = False
        self.shown = []

    def Greet(self, request, context):
        if self.is_earlier:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not this job's")
        return self.door.greet(context.invocation_metadata())

    def Stop(self, request, context):
        self.shown.append(dict(context.invocation_metadata())["authorization"])
        if not self.door.admits(context.invocation_metadata()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "greet first")
        return pb.StopReply()

    def Attach(self, request, context):
        yield pb.Wanted(ended=True)

    def Ledger(self, request, context):
        yield pb.LedgerEntry(epoch=1)
        self.goes_on.wait(SECONDS)
        yield pb.LedgerEntry(epoch=2)


class Relay(socketserver.ThreadingTCPServer):
    """An address as a network routes it: connections go to `port`, as it is when they begin, and stay there."""

    daemon_threads = True
    port = 0
    silenced = 0  # of its connections, the first ones
    opened = 0

    class RequestHandlerClass(socketserver.BaseRequestHandler):
        def handle(self):
            number, self.server.opened = self.server.opened, self.server.opened + 1

            def passes():
                return number >= self.server.silenced

            with socket.create_connection(("127.0.0.1", self.server.port)) as beyond:
                back = threading.Thread(target=pump, args=(beyond, self.request, passes), daemon=True)
                back.start()
                pump(self.request, beyond, passes)
                back.join(SECONDS)

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)

    def silence(self):
        """Nothing passes any more on the connections that there are."""
        self.silenced = self.opened


def pump(source, target, passes):
    """Bytes, until one end is gone."""
    try:
        while data := source.recv(2**16):
            if passes():
                target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def coordinator():
    return Coordinator()


@pytest.fixture
def ports(coordinator):
    """Of a server that is no coordinator, and of one that is."""
    found, servers = [], []
    for servicer in (None, coordinator):
        servers.append(grpc.server(ThreadPoolExecutor(2)))
        if servicer is not None:
            rpc.add_CoordinatorServicer_to_server(servicer, servers[-1])
        found.append(servers[-1].add_insecure_port("127.0.0.1:0"))
        servers[-1].start()
    yield found
    for server in servers:
        server.stop(0)


@pytest.fixture
def relay():
    with Relay() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def stub(relay):
    channel = coordinator_channel(f"127.0.0.1:{relay.server_address[1]}", TOKEN)
    yield rpc.CoordinatorStub(channel)
    channel.close()


def asked(stub):
    return stub.Status(pb.StatusRequest(), timeout=SECONDS).job


def attached(stub):
    return [message.ended for message in stub.Attach(pb.AttachRequest(), timeout=SECONDS)]


@pytest.mark.parametrize(("first", "then"), [(asked, asked), (attached, attached), (asked, attached)])
def test_after_a_strangers_answer_the_next_call_connects_anew(ports, relay, stub, first, then):
    stranger, relay_to = ports
    relay.port = stranger
    with pytest.raises(grpc.RpcError) as caught:
        first(stub)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    relay.port = relay_to
    with suppress(grpc.RpcError):  # a stream's end is known to who reads it a moment before the channel knows
        then(stub)
    assert then(stub) in ("digits", [True])


def test_a_connection_that_leads_nowhere_is_given_up_and_tried_anew(ports, relay, monkeypatch):
    """As to the address of a pod that has just gone: who begins to connect then would wait, whoever has come since."""
    monkeypatch.setattr(channels, "_CONNECT_MS", 100)
    with (
        socket.create_server(("127.0.0.1", 0)) as nobody,
        closing(coordinator_channel(f"127.0.0.1:{relay.server_address[1]}", TOKEN)) as channel,
    ):
        nobody.settimeout(SECONDS)
        relay.port = nobody.getsockname()[1]
        status = rpc.CoordinatorStub(channel).Status
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(status, pb.StatusRequest(), timeout=SECONDS / 2, wait_for_ready=True)
            nowhere, _ = nobody.accept()
            relay.port = ports[1]
            with nowhere:
                assert asking.result(SECONDS).job == "digits"


def test_a_connection_that_has_gone_silent_is_left(ports, relay, monkeypatch):
    """A machine that was lost, an entry of a firewall that has expired: no reset, and new connections work."""
    monkeypatch.setattr(channels, "_ALIVE_MS", 1000)
    monkeypatch.setattr(channels, "_ANSWER_MS", 1000)  # a busy machine answers within it
    _, relay.port = ports
    with closing(coordinator_channel(f"127.0.0.1:{relay.server_address[1]}", TOKEN)) as channel:
        stub = rpc.CoordinatorStub(channel)
        entries = stub.Ledger(pb.LedgerRequest())
        assert next(entries).epoch == 1
        relay.silence()
        with pytest.raises(grpc.RpcError) as caught:
            next(entries)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        with suppress(grpc.RpcError):  # gRPC may still give this one to the connection that it gives up
            asked(stub)
        assert asked(stub) == "digits"


def test_a_coordinators_own_answers_keep_the_connection(ports, relay, stub):
    stranger, relay.port = ports
    assert asked(stub) == "digits"
    relay.port = stranger
    assert asked(stub) == "digits"
    assert attached(stub) == [True]


def test_calls_that_are_under_way_go_on_while_others_connect_anew(ports, relay, stub, coordinator):
    _, relay.port = ports
    entries = stub.Ledger(pb.LedgerRequest(), timeout=SECONDS)
    assert next(entries).epoch == 1
    with pytest.raises(grpc.RpcError) as caught:
        stub.Plans(pb.PlansRequest(), timeout=SECONDS)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert asked(stub) == "digits"
    coordinator.goes_on.set()
    assert [entry.epoch for entry in entries] == [2]


def test_a_coordinator_that_has_been_started_again_is_greeted_again(ports, relay, stub, coordinator):
    _, relay.port = ports
    stub.Stop(pb.StopRequest(), timeout=SECONDS)
    coordinator.door = Door(TOKEN)
    stub.Stop(pb.StopRequest(), timeout=SECONDS)
    one, refused, other = coordinator.shown
    assert one == refused != other


def test_what_is_shown_to_one_process_opens_no_other_and_is_not_the_token(ports, relay, stub, coordinator):
    _, relay.port = ports
    stub.Stop(pb.StopRequest(), timeout=SECONDS)
    (shown,) = coordinator.shown
    assert coordinator.door.admits([("authorization", shown)])
    assert not Door(TOKEN).admits([("authorization", shown)])
    assert TOKEN.hex() not in shown


def test_who_does_not_know_the_token_is_shown_nothing(ports, relay, stub, coordinator):
    """A thief who has taken the port of a coordinator that died; calls go on when it is back."""
    _, relay.port = ports
    own, coordinator.door = coordinator.door, Door(bytes(16))
    with pytest.raises(NotTheCoordinator) as caught:
        stub.Stop(pb.StopRequest(), timeout=SECONDS)
    assert caught.value.code() in channels.AWAY
    assert coordinator.shown == []
    coordinator.door = own
    stub.Stop(pb.StopRequest(), timeout=SECONDS)


def test_a_coordinator_of_an_earlier_release_is_called_one(ports, relay, stub, coordinator):
    """It knows no greeting, and asks whoever calls for the token."""
    _, relay.port = ports
    coordinator.is_earlier = True
    with pytest.raises(EarlierCoordinator) as caught:
        stub.Stop(pb.StopRequest(), timeout=SECONDS)
    assert "earlier release" in caught.value.details()
    assert caught.value.code() in channels.AWAY
    assert coordinator.shown == []


def test_a_call_on_a_channel_that_was_closed_meanwhile_raises(ports, relay):
    """As where a launcher ends while its thread tells of a process's end: the first call of a method then ended it."""
    _, relay.port = ports
    channel = coordinator_channel(f"127.0.0.1:{relay.server_address[1]}", TOKEN)
    stub = rpc.CoordinatorStub(channel)
    asked(stub)
    channel.close()
    for call in (lambda: stub.Stop(pb.StopRequest(), timeout=SECONDS), lambda: attached(stub)):
        with pytest.raises(ValueError, match="closed channel"):
            call()


@pytest.mark.parametrize(
    ("host", "address"),
    [("10.0.0.7", "10.0.0.7:80"), ("h", "h:80"), ("::1", "[::1]:80"), ("[fd00::1]", "[fd00::1]:80")],
)
def test_an_ipv6_address_has_brackets_beside_its_port(host, address):
    assert address_of(host, 80) == address
    assert is_address(address)


@pytest.mark.parametrize("text", ["::1", "::1:80", "[::1]", "h:0", ":80"])
def test_what_is_no_address(text):
    assert not is_address(text)
