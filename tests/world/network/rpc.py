"""gRPC's place in the world: calls between stubs and the servicer of production, over the world's network.

A channel connects where a call needs it, again and again where the call waits for that. Both ends ask for a sign of
life after silence, as gRPC's keepalive does, and break the connection where none comes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import grpc

from elastic_ps.control.channels import connection_options
from tests.world.kernel.scheduler import DEAD, FROZEN, Process, Task
from tests.world.kernel.threads import here
from tests.world.network.network import End, Network, Refused

_OPTIONS = dict(connection_options())
_CONNECT_SECONDS = _OPTIONS["grpc.min_reconnect_backoff_ms"] / 1000
_FIRST_PAUSE = _OPTIONS["grpc.initial_reconnect_backoff_ms"] / 1000
_MOST_PAUSE = _OPTIONS["grpc.max_reconnect_backoff_ms"] / 1000
_ALIVE_SECONDS = _OPTIONS["grpc.keepalive_time_ms"] / 1000
_ANSWER_SECONDS = _OPTIONS["grpc.keepalive_timeout_ms"] / 1000

UNAVAILABLE, CANCELLED, LATE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)


class CallFailed(grpc.RpcError):
    """A call has failed."""

    def __init__(self, code: grpc.StatusCode, details: str):
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


class Live:
    """A `Live` keeps one end of a connection as long as the other's process answers.

    Args:
        end: of the connection.
        took: called with what comes, once the process runs.
        broke: called with the reason when it has broken.
    """

    def __init__(self, end: End, took: Callable[[Any], None], broke: Callable[[str], None]):
        self.end = end
        self._took, self._broke = took, broke
        self._heard = self._asked = here.scheduler.now
        end.took, end.broke = self._arrived, self._lost
        self._look_later(_ALIVE_SECONDS)

    def send(self, item: Any) -> None:
        self.end.send(item)

    def _later(self, act: Callable[[], None]) -> None:
        """Do something in the process's name: a frozen one does it when it goes on."""
        if self.end.process.state == FROZEN:
            self.end.process.later.append(act)
        elif self.end.process.state != DEAD:
            act()

    def _arrived(self, item: Any) -> None:
        if self.end.process.state:
            self._later(partial(self._take, item))
        else:
            self._take(item)

    def _take(self, item: Any) -> None:
        self._heard = here.scheduler.now
        if item == "ping":
            self.end.send("pong")
        elif item != "pong":
            self._took(item)

    def _lost(self, why: str) -> None:
        self._later(lambda: self._broke(why))

    def _look_later(self, seconds: float) -> None:
        here.scheduler.call_at(here.scheduler.now + seconds, lambda: self._later(self._look))

    def _look(self) -> None:
        if not self.end.open:
            return
        now = here.scheduler.now
        if self._asked > self._heard and now - self._asked >= _ANSWER_SECONDS:
            self.end.close("ping timeout")
            self._broke("ping timeout")
        elif self._asked <= self._heard and now - self._heard >= _ALIVE_SECONDS:
            self._asked = now + 1e-9
            self.end.send("ping")
            self._look_later(_ANSWER_SECONDS)
        else:
            self._look_later(_ALIVE_SECONDS / 2)


class Call:
    """A `Call` is under way, until it has its answer or has failed."""

    def __init__(self, number: int):
        self.number = number
        self.items: deque[bytes] = deque()
        self.failure: CallFailed | None = None
        self.ended = False
        self._waiting: Task | None = None
        self._callbacks: list[Callable[[], None]] = []

    def take(self, item: bytes) -> None:
        self.items.append(item)
        self._wake()

    def end(self, failure: CallFailed | None = None) -> None:
        if not self.ended:
            self.ended, self.failure = True, failure
            self._wake()
            for callback in self._callbacks:
                callback()

    def when_ended(self, callback: Callable[[], None]) -> None:
        if self.ended:
            callback()
        else:
            self._callbacks.append(callback)

    def wait(self, until: float | None) -> bool:
        """Wait for an item or the end; return False where `until` has come."""
        while not self.items and not self.ended:
            left = None if until is None else until - here.scheduler.now
            if left is not None and left <= 0:
                return False
            self._waiting = here.scheduler.current
            here.scheduler.park(left)
            self._waiting = None
        return True

    def _wake(self) -> None:
        if self._waiting is not None:
            here.scheduler.wake(self._waiting)


class Stream:
    """See what grpc returns for a call with a stream of answers."""

    def __init__(self, channel: "WorldChannel", call: Call, decode: Callable[[bytes], Any]):
        self._channel, self._call, self._decode = channel, call, decode

    def __iter__(self) -> Iterator[Any]:
        while True:
            self._call.wait(None)
            if self._call.failure is not None:
                raise self._call.failure
            if not self._call.items:
                return
            yield self._decode(self._call.items.popleft())

    def cancel(self) -> None:
        self._channel.give_up(self._call, CallFailed(CANCELLED, "Locally cancelled by application!"))

    def add_callback(self, callback: Callable[[], None]) -> None:
        self._call.when_ended(callback)

    def code(self) -> grpc.StatusCode:
        return self._call.failure.code() if self._call.failure is not None else grpc.StatusCode.OK


class WorldChannel:
    """See `grpc.Channel`; one connection, opened when it is needed.

    Args:
        network: of the world.
        process: whose it is.
        address: host:port.
    """

    def __init__(self, network: Network, process: Process, address: str):
        self._network, self._process = network, process
        self._port = int(address.rpartition(":")[2])
        self._live: Live | None = None
        self._calls: dict[int, Call] = {}
        self._numbers = count(1)
        self._connecting: list[Task] | None = None
        self._again_at, self._pause = 0.0, _FIRST_PAUSE
        self._closed = False

    def unary_unary(self, method: str, encode: Any = None, decode: Any = None, **options: Any) -> Callable[..., Any]:
        encode, decode = encode or options["request_serializer"], decode or options["response_deserializer"]

        def ask(
            request: Any, timeout: float | None = None, wait_for_ready: bool | None = None, metadata: Any = ()
        ) -> Any:
            until = None if timeout is None else here.scheduler.now + timeout
            call = self._begin(method, encode(request), until, bool(wait_for_ready), metadata)
            if not call.wait(until):
                self.give_up(call, CallFailed(LATE, "Deadline Exceeded"))
            if call.failure is not None:
                raise call.failure
            return decode(call.items.popleft())

        return ask

    def unary_stream(self, method: str, encode: Any = None, decode: Any = None, **options: Any) -> Callable[..., Any]:
        encode, decode = encode or options["request_serializer"], decode or options["response_deserializer"]

        def ask(
            request: Any, timeout: float | None = None, wait_for_ready: bool | None = None, metadata: Any = ()
        ) -> Stream:
            return Stream(self, self._begin(method, encode(request), None, bool(wait_for_ready), metadata), decode)

        return ask

    def close(self) -> None:
        self._closed = True
        for call in list(self._calls.values()):
            self.give_up(call, CallFailed(CANCELLED, "Channel closed!"))
        if self._live is not None:
            self._live.end.close()
            self._live = None

    def give_up(self, call: Call, failure: CallFailed) -> None:
        """End a call before its answer has come."""
        if self._calls.pop(call.number, None) is not None and self._live is not None:
            self._live.send(("cancel", call.number))
        call.end(failure)

    def _begin(self, method: str, data: bytes, until: float | None, ready: bool, metadata: Any) -> Call:
        if self._closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        live = self._connected(until, ready)
        call = Call(next(self._numbers))
        self._calls[call.number] = call
        live.send(("call", call.number, method, tuple(metadata), data))
        return call

    # ---- the connection ----------------------------------------------------------------------------------------------

    def _connected(self, until: float | None, ready: bool) -> Live:
        """Return the connection, once there is one. Raises CallFailed."""
        scheduler = here.scheduler
        while self._live is None:
            if self._closed:
                raise CallFailed(CANCELLED, "Channel closed!")
            left = None if until is None else until - scheduler.now
            if left is not None and left <= 0:
                raise CallFailed(LATE, "Deadline Exceeded")
            if self._connecting is not None:
                waiting = self._connecting
                waiting.append(scheduler.current)
                if not scheduler.park(left):
                    waiting.remove(scheduler.current)
            elif scheduler.now < self._again_at:
                if not ready:
                    raise CallFailed(UNAVAILABLE, "failed to connect to all addresses")
                scheduler.park(min(self._again_at - scheduler.now, left if left is not None else 1e9))
            else:
                self._connect(_CONNECT_SECONDS if left is None else min(left, _CONNECT_SECONDS), ready)
        return self._live

    def _connect(self, seconds: float, ready: bool) -> None:
        """Connect within some seconds, no later than the call that wants it has to fail."""
        self._connecting = []
        try:
            end = self._network.connect(self._process, self._port, seconds)
        except Refused as error:
            self._again_at = here.scheduler.now + self._pause
            self._pause = min(1.6 * self._pause, _MOST_PAUSE)
            if not ready and seconds >= _CONNECT_SECONDS:
                raise CallFailed(UNAVAILABLE, f"failed to connect to all addresses: {error}") from None
        else:
            self._pause = _FIRST_PAUSE
            self._live = Live(end, self._take, self._lost)
        finally:
            waiting, self._connecting = self._connecting, None
            for task in waiting or ():
                here.scheduler.wake(task)

    def _take(self, item: Any) -> None:
        kind, number, *rest = item
        call = self._calls.get(number)
        if call is None:
            return
        if kind in ("item", "answer"):
            call.take(rest[0])
        if kind != "item":
            del self._calls[number]
            call.end(CallFailed(*rest) if kind == "error" else None)

    def _lost(self, why: str) -> None:
        self._live = None
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.end(CallFailed(UNAVAILABLE, why))
