"""Strangers at the coordinator: refused before anything of their message is read."""

import asyncio
import threading

import grpc
import pytest
from token_channel import showing

from coordinator.admission import make_server
from elastic_ps.core.token import admits, credentials
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

TOKEN = bytes(range(16))
METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["Coordinator"].methods]
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
        await server.stop(0.2)

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


WRONG = {
    "none": (),
    "another": credentials(bytes(16)),
    "empty": (("authorization", ""),),
    "no scheme": (("authorization", TOKEN.hex()),),
    "half": (("authorization", f"Bearer {TOKEN.hex()[:16]}"),),
    "two": (*credentials(bytes(16)), *credentials(TOKEN)),
    "elsewhere": (("token", TOKEN.hex()),),
}


@pytest.mark.parametrize("metadata", WRONG.values(), ids=WRONG.keys())
def test_a_stranger_is_refused_and_nothing_of_it_is_read(watched, channel, metadata):
    for name in METHODS:
        with pytest.raises(grpc.RpcError) as error:
            call(channel, name, metadata, b"\xff" * 100)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED, name
    assert (watched.read, watched.called) == ([], [])


def test_a_large_message_of_a_stranger_is_not_waited_for(watched, channel):
    with pytest.raises(grpc.RpcError) as error:
        call(channel, "Report", (), bytes(80 << 20))  # more than a message may have, which is not even looked at
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert watched.read == []


def test_who_shows_the_token_is_heard(watched, channel):
    for name in METHODS:
        call(channel, name, credentials(TOKEN))
    assert watched.read == watched.called == METHODS
    watched.read.clear()
    watched.called.clear()


def test_a_probe_needs_no_token(watched, channel):
    assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10) == b"\x08\x01"


def test_a_method_that_there_is_not_says_nothing_to_strangers(channel):
    for metadata, code in ((), grpc.StatusCode.UNAUTHENTICATED), (credentials(TOKEN), grpc.StatusCode.UNIMPLEMENTED):
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/elastic.Coordinator/Nothing")(b"", timeout=10, metadata=metadata)
        assert error.value.code() is code


def test_the_contract_has_no_other_place_for_the_token():
    assert "token" not in {field.name for field in pb.Caller.DESCRIPTOR.fields}
    assert admits(TOKEN, credentials(TOKEN))
    assert not admits(TOKEN, (("authorization", b"\xff\x00"),))


def test_stubs_of_the_tests_show_it(watched, channel):
    rpc.CoordinatorStub(showing(channel, TOKEN)).Plans(pb.PlansRequest(), timeout=10)
    assert watched.read == ["Plans"]
    watched.read.clear()
    watched.called.clear()
