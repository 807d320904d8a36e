"""Who may call: a call that does not show the job's token is refused before any of its message is read."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from coordinator import health
from elastic_ps.core.token import admits

_MESSAGE_BYTES = 64 << 20


class TokenGuard(grpc.aio.ServerInterceptor):
    """Refuses strangers. Probes, which ask nothing of the job, pass.

    Args:
        token: of the job.
    """

    def __init__(self, token: bytes):
        self._token = token

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """The method's handler, or one that refuses: it takes a stream, and so reads nothing of what comes."""
        details = handler_call_details
        if details.method == health.CHECK or admits(self._token, details.invocation_metadata or ()):
            handler: grpc.RpcMethodHandler[Any, Any] | None = await continuation(details)
            return handler
        return grpc.stream_unary_rpc_method_handler(_refuse)


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not this job's")


def make_server(token: bytes) -> "grpc.aio.Server":
    """A server that only those who show the token can use; it answers probes."""
    server = grpc.aio.server(
        interceptors=(TokenGuard(token),),
        options=[
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),  # a port in use is an error, not shared
        ],
    )
    server.add_generic_rpc_handlers((health.handler(),))
    return server
