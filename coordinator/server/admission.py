"""A call that does not show the job's token is refused before any of its message is read."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from coordinator.server import health
from coordinator.server.message_checks import fault
from elastic_ps.control.channels import GREET, keepalive_options
from elastic_ps.control.token import Door
from protos import elastic_pb2 as pb

_MESSAGE_BYTES = 64 << 20
_GREETING_MS, _IDLE_MS = 10_000, 60_000
_MOST_CALLS = 256
"""Calls of one connection at once, at most."""


class TokenGuard(grpc.aio.ServerInterceptor):
    """A token guard refuses strangers. Probes, which ask nothing of the job, pass.

    Args:
        token: of the job.
    """

    def __init__(self, token: bytes):
        self._door = Door(token)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the method's handler, or one that refuses: it takes a stream, and so reads nothing of what comes."""
        details = handler_call_details
        metadata = details.invocation_metadata or ()
        if details.method == GREET:
            return grpc.stream_unary_rpc_method_handler(self._greet, None, pb.GreetReply.SerializeToString)
        if details.method == health.CHECK or self._door.admits(metadata):
            handler: grpc.RpcMethodHandler[Any, Any] | None = await continuation(details)
            return handler
        return grpc.stream_unary_rpc_method_handler(_refuse)

    async def _greet(self, _requests: Any, context: Any) -> pb.GreetReply:
        try:
            return self._door.greet(context.invocation_metadata())
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Greet needs a nonce in its metadata: {error}")
            raise AssertionError("abort raises") from error


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the call does not prove that it is of this job: greet first")


class MessageGuard(grpc.aio.ServerInterceptor):
    """A message guard refuses what no correct caller sends, of whatever method, before the method sees it."""

    def __init__(self) -> None:
        self._guarded: dict[Any, grpc.RpcMethodHandler[Any, Any]] = {}  # by the method's own

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the method's handler, behind a check of what it is given."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return cast("grpc.RpcMethodHandler[Any, Any] | None", handler)
        if (guarded := self._guarded.get(handler)) is None:
            guarded = self._guarded[handler] = _guarded(handler)
        return guarded


def _guarded(handler: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    how = {name: getattr(handler, name) for name in ("request_deserializer", "response_serializer")}
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(_checked_stream(handler.unary_stream), **how)
    return grpc.unary_unary_rpc_method_handler(_checked(handler.unary_unary), **how)


def _checked(method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        await _refuse_fault(request, context)
        return await method(request, context)

    return call


def _checked_stream(method: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        await _refuse_fault(request, context)
        async for message in method(request, context):
            yield message

    return call


async def _refuse_fault(request: Any, context: Any) -> None:
    if isinstance(request, Message) and (found := fault(request)):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, found)


def make_server(token: bytes) -> "grpc.aio.Server":
    """Return a server that only those who show the token can use; it answers probes."""
    server = grpc.aio.server(
        interceptors=(TokenGuard(token), MessageGuard()),
        options=[
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),  # a port in use is an error, not shared
            ("grpc.server_handshake_timeout_ms", _GREETING_MS),  # who has connected and says nothing
            ("grpc.max_connection_idle_ms", _IDLE_MS),  # and who asks nothing: a node has its stream open
            ("grpc.max_concurrent_streams", _MOST_CALLS),
            *keepalive_options(),
        ],
    )
    server.add_generic_rpc_handlers((health.handler(),))
    return server


async def stop_server(server: "grpc.aio.Server", grace: float) -> None:
    """End the server, and wait for its methods, too: gRPC does not, and a loop that ends them logs a traceback of each.

    Args:
        server: the only thing that still runs in this loop, but for the caller.
        grace: seconds for calls to end by themselves, and again for methods whose callers were told.
    """
    await server.stop(grace)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    # A stream that was cancelled while it wrote is closed by a task that asyncio makes later.
    while (methods := asyncio.all_tasks() - {asyncio.current_task()}) and loop.time() < deadline:
        await asyncio.wait(methods, timeout=deadline - loop.time())
        await asyncio.sleep(0)
