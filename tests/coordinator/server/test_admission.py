"""Strangers at the coordinator: refused before anything of their message is read."""

import asyncio
import threading

import grpc
import pytest

from coordinator.server.admission import make_server, stop_server
from elastic_ps.control.token import Door
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc
from tests.coordinator.token_channel import credentials, showing

TOKEN = bytes(range(16))
METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["Coordinator"].methods if method.name != "Greet"]
STREAMS = ("Listen", "Attach", "Ledger", "Steps")


class Watched:
    """A server of the whole contract whose deserialisers and methods tell that they have run."""

    def __init__(self):
        self.read, self.called = [], []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="watched")
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = make_server(TOKEN)
        handlers = {name: self._handler(name) for name in METHODS}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("elastic.Coordinator", handlers),))
        self.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._ready.set()
        await self._stop.wait()
        await stop_server(server, 0.2)

    def _handler(self, name):
        def read(data):
            self.read.append(name)
            return data

        async def answer(_request, _context):
            self.called.append(name)
            return b""

        async def stream(_request, _context):
            self.called.append(name)
            yield b""

        if name in STREAMS:
            return grpc.unary_stream_rpc_method_handler(stream, read)
        return grpc.unary_unary_rpc_method_handler(answer, read)

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


@pytest.fixture(scope="module")
def watched():
    server = Watched()
    yield server
    server.close()


@pytest.fixture
def channel(watched):
    with grpc.insecure_channel(f"127.0.0.1:{watched.port}") as opened:
        yield opened


def call(channel, name, metadata, message=b""):
    path = f"/elastic.Coordinator/{name}"
    if name in STREAMS:
        return list(channel.unary_stream(path)(message, timeout=10, metadata=metadata))
    return channel.unary_unary(path)(message, timeout=10, metadata=metadata)


def another(channel):
    """What was shown to another process of the coordinator."""
    value = credentials(channel, TOKEN)[0][1]
    scheme, nonce, shown = value.split()
    return scheme, nonce, shown, bytes(32).hex()


WRONG = {
    "none": lambda _: (),
    "the token itself": lambda _: (("authorization", f"Bearer {TOKEN.hex()}"),),
    "empty": lambda _: (("authorization", ""),),
    "another nonce": lambda of: (("authorization", " ".join([of[0], of[3], of[2]])),),
    "no proof": lambda of: (("authorization", " ".join([of[0], of[1], of[3]])),),
    "half": lambda of: (("authorization", " ".join([of[0], of[1], of[2][:32]])),),
    "two": lambda of: (("authorization", " ".join(of[:3])), ("authorization", " ".join(of[:3]))),
    "elsewhere": lambda of: (("token", " ".join(of[:3])),),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_stranger_is_refused_and_nothing_of_it_is_read(watched, channel, wrong):
    metadata = wrong(another(channel))
    for name in METHODS:
        with pytest.raises(grpc.RpcError) as error:
            call(channel, name, metadata, b"\xff" * 100)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED, name
    assert (watched.read, watched.called) == ([], [])


def test_who_greets_without_a_nonce_is_told_so(channel):
    for metadata in ((), (("elastic-nonce", "x"),), (("elastic-nonce", "00"),)):
        with pytest.raises(grpc.RpcError) as error:
            call(channel, "Greet", metadata)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_greeting_is_answered_unread(channel):
    metadata = (("elastic-nonce", bytes(32).hex()),)
    reply = pb.GreetReply.FromString(call(channel, "Greet", metadata, bytes(80 << 20)))
    assert (len(reply.nonce), len(reply.proof)) == (32, 32)


def test_a_large_message_of_a_stranger_is_not_waited_for(watched, channel):
    with pytest.raises(grpc.RpcError) as error:
        call(channel, "Report", (), bytes(80 << 20))  # more than a message may have, which is not even looked at
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert watched.read == []


def test_who_shows_the_token_is_heard(watched, channel):
    shown = credentials(channel, TOKEN)
    for name in METHODS:
        call(channel, name, shown)
    assert watched.read == watched.called == METHODS
    watched.read.clear()
    watched.called.clear()


def test_a_probe_needs_no_token(watched, channel):
    assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10) == b"\x08\x01"


def test_a_method_that_there_is_not_says_nothing_to_strangers(channel):
    for metadata, code in (
        ((), grpc.StatusCode.UNAUTHENTICATED),
        (credentials(channel, TOKEN), grpc.StatusCode.UNIMPLEMENTED),
    ):
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/elastic.Coordinator/Nothing")(b"", timeout=10, metadata=metadata)
        assert error.value.code() is code


def test_the_contract_has_no_other_place_for_the_token():
    assert "token" not in {field.name for field in pb.Caller.DESCRIPTOR.fields}
    assert not Door(TOKEN).admits((("authorization", b"\xff\x00"),))


def test_stubs_of_the_tests_show_it(watched, channel):
    rpc.CoordinatorStub(showing(channel, TOKEN)).Plans(pb.PlansRequest(), timeout=10)
    assert watched.read == ["Plans"]
    watched.read.clear()
    watched.called.clear()


def test_a_probe_is_answered_unread(channel):
    """Eight calls of 60 MB took 814 MB; more than a message may have is not even looked at."""
    assert channel.unary_unary("/grpc.health.v1.Health/Check")(bytes(80 << 20), timeout=20) == b"\x08\x01"


@pytest.mark.parametrize(("turns", "grace", "left"), [(50, 2.0, False), (None, 0.2, True)], ids=["slow", "never"])
def test_a_server_that_ends_waits_a_bounded_while_for_its_methods(turns, grace, left):
    """A loop that ends before them cancels them, and gRPC logs a traceback of each: of a job that ended well."""

    async def told(_request, _context):
        try:
            while True:
                yield b""
                await asyncio.sleep(0)
        finally:
            await (asyncio.Event().wait() if turns is None else turning(turns))

    async def turning(turns):
        for _ in range(turns):
            await asyncio.sleep(0)

    async def serve():
        server = grpc.aio.server()
        method = grpc.unary_stream_rpc_method_handler(told)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.Job", {"Tell": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_stream("/a.Job/Tell")(b"")
            await asyncio.to_thread(next, call)
            await stop_server(server, grace)
            call.cancel()
        return len(asyncio.all_tasks()) > 1

    assert asyncio.run(serve()) is left
