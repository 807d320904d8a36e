"""Channels to a coordinator, which may go away and come back at the same address."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

import grpc

AWAY = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNIMPLEMENTED,  # not a coordinator: somebody else answers at its address while it is away
)
"""How calls end while the coordinator is away: those who wait for it try again."""

_RECONNECT_MS = (100, 1000)
"""Between tries to connect, at first and at most: a coordinator comes back soon. gRPC's own are a second and two
minutes."""

_CONNECT_MS = 3000
"""A try to connect that is longer without an answer goes to who is gone: gRPC itself gives it 20 s. Time enough for one
packet that is lost."""

_MESSAGE_BYTES = 64 << 20


def coordinator_channel(address: str) -> grpc.Channel:
    """A channel for `CoordinatorStub`.

    gRPC keeps a connection for as long as it lasts, also one to somebody else: where a service of Kubernetes has no
    endpoint yet, whatever the network routes its address to may answer. So after an answer that is no coordinator's
    (UNIMPLEMENTED) the next call connects anew.

    Args:
        address: host:port.
    """
    options = [
        *connection_options(),
        ("grpc.use_local_subchannel_pool", 1),  # else a new channel takes over the connection of the one before
    ]
    return cast(grpc.Channel, _Renewed(lambda: grpc.insecure_channel(address, options=options)))


def connection_options() -> list[tuple[str, int]]:
    """Of any channel to a coordinator.

    Where its endpoint has just gone, packets may go nowhere for as long as a try to connect lasts, whoever has the
    address since: so no try lasts long.
    """
    first, most = _RECONNECT_MS
    return [
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MESSAGE_BYTES),
        ("grpc.enable_http_proxy", 0),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),  # that is what a try may take
        ("grpc.initial_reconnect_backoff_ms", first),
        ("grpc.max_reconnect_backoff_ms", most),
    ]


class _Renewed:
    """As much of a channel as `CoordinatorStub` needs. Safe from several threads.

    Args:
        connect: makes a channel.
    """

    def __init__(self, connect: Callable[[], grpc.Channel]):
        self._connect = connect
        self._lock = threading.Lock()
        self._channel = connect()
        self._left: weakref.WeakSet[grpc.Channel] = weakref.WeakSet()  # each goes on until its calls have ended
        self._strange = self._closed = False

    def unary_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.Channel.unary_unary`."""

        def call(request: Any, **how: Any) -> Any:
            channel = self._present()
            try:
                return channel.unary_unary(*args, **options)(request, **how)
            except grpc.RpcError as error:
                self._hear(channel, error.code())
                raise

        return call

    def unary_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.Channel.unary_stream`."""

        def call(request: Any, **how: Any) -> Any:
            channel = self._present()
            stream: Any = channel.unary_stream(*args, **options)(request, **how)
            stream.add_callback(lambda: self._hear(channel, stream.code()))
            return stream

        return call

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._closed = True
            channels = [self._channel, *self._left]
        for channel in channels:  # unlocked: it waits for calls to end, whose end is heard
            channel.close()

    def _hear(self, channel: grpc.Channel, code: grpc.StatusCode) -> None:
        """How a call ended."""
        with self._lock:
            self._strange |= channel is self._channel and code is grpc.StatusCode.UNIMPLEMENTED

    def _present(self) -> grpc.Channel:
        with self._lock:
            if self._strange and not self._closed:
                self._left.add(self._channel)
                self._channel, self._strange = self._connect(), False
            return self._channel
