"""This module makes channels to a coordinator, which may go away and come back at the same address."""

import re
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, cast

import grpc

from elastic_ps.control.token import Impostor, Metadata, admitted, greeting
from protos import elastic_pb2 as pb

AWAY = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNIMPLEMENTED,  # not a coordinator: somebody else answers at its address while it is away
    grpc.StatusCode.UNAUTHENTICATED,  # another process of it than the one that was greeted: the next try greets again
)
"""How calls end while the coordinator is away: those who wait for it try again."""

_RECONNECT_MS = (100, 1000)
"""The pauses between tries to connect, at first and at most: a coordinator comes back soon. gRPC's own are one second
and two minutes."""

_CONNECT_MS = 3000
"""How long a try to connect lasts: without an answer by then nobody is there. It is enough for one packet that is lost;
gRPC itself waits 20 s."""

_ALIVE_MS, _ANSWER_MS = 4000, 4000
"""After the first time of silence a connection is asked for a sign of life; where none comes within the second it is
left. So a path that is gone without a reset costs a node less than its lease."""

_MESSAGE_BYTES = 64 << 20

GREET = "/elastic.Coordinator/Greet"
_GREET_SECONDS = 3.0
"""The longest that a greeting takes; it is repeated with the call that it is for."""


def is_address(text: str) -> bool:
    """Return whether a text is HOST:PORT, with a port from 1 to 65535; an IPv6 address has brackets."""
    host, _, port = text.rpartition(":")
    if ":" in host and not re.fullmatch(r"\[.+\]", host):
        return False
    return bool(host and re.fullmatch("[0-9]{1,5}", port)) and 0 < int(port) < 1 << 16


def address_of(host: str, port: int) -> str:
    """Return HOST:PORT; an IPv6 address gets its brackets, as nobody could tell its end from the port."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


class NotTheCoordinator(grpc.RpcError):
    """Whoever answers at the coordinator's address does not know the job's token, and is shown nothing."""

    def code(self) -> grpc.StatusCode:
        """Return what says that there is no coordinator: where it is only away, it comes back."""
        return grpc.StatusCode.UNIMPLEMENTED

    def details(self) -> str:
        """Return the reason for people."""
        return "who answers there does not know this job's token: it is another job's coordinator, or somebody else"


class EarlierCoordinator(NotTheCoordinator):
    """Whoever answers asks for the token itself, also of a greeting: releases did so in which tokens travelled."""

    def details(self) -> str:
        """Return the reason for people."""
        return "a coordinator of an earlier release answers there: use the commands of the release that started its job"


def coordinator_channel(address: str, token: bytes) -> grpc.Channel:
    """Return a channel for `CoordinatorStub`, whose calls prove the token to a coordinator that has proved it.

    gRPC keeps a connection for as long as it lasts, also one to somebody else: where a service of Kubernetes has no
    endpoint yet, whatever the network routes its address to may answer. So after an answer that is no coordinator's
    (UNIMPLEMENTED) the next call connects anew.

    Args:
        address: host:port.
        token: the job's.
    """
    options = [
        *connection_options(),
        ("grpc.use_local_subchannel_pool", 1),  # else a new channel takes over the connection of the one before
    ]
    return cast(grpc.Channel, _Renewed(lambda: grpc.insecure_channel(address, options=options), token))


async def greeted(channel: "grpc.aio.Channel", token: bytes) -> Metadata:
    """Greet a coordinator on a channel of asyncio.

    Returns:
        The metadata of calls that follow.

    Raises:
        grpc.RpcError: nobody has answered, or `NotTheCoordinator`.
    """
    nonce, metadata = greeting()
    ask = channel.unary_unary(GREET, pb.GreetRequest.SerializeToString, pb.GreetReply.FromString)
    return _shown(token, nonce, await ask(pb.GreetRequest(), timeout=_GREET_SECONDS, metadata=metadata))


def _shown(token: bytes, nonce: bytes, answer: pb.GreetReply) -> Metadata:
    try:
        return admitted(token, nonce, answer)
    except Impostor:
        raise NotTheCoordinator from None


def connection_options() -> list[tuple[str, int]]:
    """Return the options of any channel to a coordinator.

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
        *keepalive_options(),
    ]


def keepalive_options() -> list[tuple[str, int]]:
    """Return what both ends of a connection need so that each notices when the other has gone without a word."""
    return [
        ("grpc.keepalive_time_ms", _ALIVE_MS),
        ("grpc.keepalive_timeout_ms", _ANSWER_MS),
        ("grpc.http2.ping_timeout_ms", _ANSWER_MS),  # those that measure a path count too, and were given a minute
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),  # as many as it takes
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _ALIVE_MS // 4),  # of the other end's
        ("grpc.http2.max_ping_strikes", 0),
    ]


class _Renewed:
    """A `_Renewed` is as much of a channel as `CoordinatorStub` needs. It is safe to use from several threads.

    Args:
        connect: makes a channel.
        token: the job's.
    """

    def __init__(self, connect: Callable[[], grpc.Channel], token: bytes):
        self._connect, self._token = connect, token
        self._lock = threading.Lock()
        self._channel = connect()
        self._left: weakref.WeakSet[grpc.Channel] = weakref.WeakSet()  # each goes on until its calls have ended
        self._shown: Metadata | None = None  # None: the coordinator has not been greeted
        self._strange = self._closed = False

    def unary_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.Channel.unary_unary`."""
        options = _unregistered(options)

        def call(request: Any, **how: Any) -> Any:
            for last in (False, True):
                channel = self._present()
                try:
                    shown = self._greeted(channel, **how)
                    return channel.unary_unary(*args, **options)(request, **how, metadata=shown)
                except grpc.RpcError as error:
                    self._hear(channel, error.code())
                    if last or error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                        raise
            raise AssertionError("the last try returns or raises")

        return call

    def unary_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """See `grpc.Channel.unary_stream`. It is not known yet how the stream begins when this returns."""
        options = _unregistered(options)

        def call(request: Any, **how: Any) -> Any:
            channel = self._present()
            try:
                shown = self._greeted(channel, anew=True, **how)
            except grpc.RpcError as error:
                self._hear(channel, error.code())
                raise
            stream: Any = channel.unary_stream(*args, **options)(request, **how, metadata=shown)
            stream.add_callback(lambda: self._hear(channel, stream.code()))
            return stream

        return call

    def _greeted(self, channel: grpc.Channel, anew: bool = False, **how: Any) -> Metadata:
        """Return what to show to a coordinator that has proved that it is the job's. Raises grpc.RpcError."""
        with self._lock:
            known = self._shown if channel is self._channel and not anew else None
        if known is not None:
            return known
        nonce, metadata = greeting()
        greet = channel.unary_unary(GREET, pb.GreetRequest.SerializeToString, pb.GreetReply.FromString)
        seconds = min(how.get("timeout") or _GREET_SECONDS, _GREET_SECONDS)
        ready = how.get("wait_for_ready")
        try:
            answer = greet(pb.GreetRequest(), timeout=seconds, wait_for_ready=ready, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise EarlierCoordinator from None
            raise
        shown = _shown(self._token, nonce, answer)
        with self._lock:
            if channel is self._channel:
                self._shown = shown
        return shown

    def close(self) -> None:
        """Close every channel."""
        with self._lock:
            self._closed = True
            channels = [self._channel, *self._left]
        for channel in channels:  # unlocked: it waits for calls to end, whose end is heard
            channel.close()

    def _hear(self, channel: grpc.Channel, code: grpc.StatusCode) -> None:
        """Take note of how a call has ended."""
        with self._lock:
            if channel is self._channel:
                self._strange |= code is grpc.StatusCode.UNIMPLEMENTED
                if code is grpc.StatusCode.UNAUTHENTICATED:
                    self._shown = None

    def _present(self) -> grpc.Channel:
        with self._lock:
            if self._strange and not self._closed:
                self._left.add(self._channel)
                self._channel, self._strange, self._shown = self._connect(), False, None
            return self._channel


def _unregistered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave a method unregistered: to register one with a channel that another thread has closed ends the process."""
    return {name: value for name, value in options.items() if name != "_registered_method"}
