"""grpc.aio's server in the world: it hands calls to production's interceptors and servicer, on its loop."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc

from tests.world.kernel.loop import WorldLoop
from tests.world.kernel.scheduler import Process
from tests.world.network.network import End, Network
from tests.world.network.rpc import Live


class Aborted(Exception):
    """A servicer has refused a call."""


class Context:
    """See grpc.aio's ServicerContext."""

    def __init__(self, metadata: Any):
        self._metadata = metadata
        self.failure: tuple[grpc.StatusCode, str] | None = None

    def invocation_metadata(self) -> Any:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        self.failure = code, details
        raise Aborted(details)


class WorldServer:
    """See `grpc.aio.Server`.

    Args:
        network: of the world.
        process: the coordinator's.
        interceptors: the first is asked first.
    """

    def __init__(self, network: Network, process: Process, interceptors: Sequence[Any]):
        self._network, self._process, self._interceptors = network, process, interceptors
        self._handlers: list[Any] = []
        self._tasks: dict[tuple[End, int], asyncio.Task[None]] = {}
        self._lives: dict[End, Live] = {}
        self._port = 0
        self._loop: WorldLoop | None = None

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The generic ones do."""

    def add_insecure_port(self, address: str) -> int:
        try:
            self._port = self._network.listen(self._process, int(address.rpartition(":")[2]), self._accept)
        except OSError as error:
            raise RuntimeError(str(error)) from error
        return self._port

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()  # type: ignore[assignment]

    async def stop(self, grace: float | None) -> None:
        self._network.forget(self._port)
        if self._tasks and grace:
            await asyncio.wait(list(self._tasks.values()), timeout=grace)
        for task in self._tasks.values():
            task.cancel()
        for live in list(self._lives.values()):
            live.end.close()

    def _accept(self, end: End) -> None:
        self._lives[end] = Live(end, lambda item: self._take(end, item), lambda why: self._lost(end))

    def _take(self, end: End, item: Any) -> None:
        """Begin a call, or cancel one: the loop's next turn has it."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        kind, number, *rest = item
        if kind == "call":
            task = loop.create_task(self._serve(end, number, *rest))
            self._tasks[end, number] = task
            task.add_done_callback(lambda _: self._tasks.pop((end, number), None))
        elif (known := self._tasks.get((end, number))) is not None:
            known.cancel()
        loop.wake()

    def _lost(self, end: End) -> None:
        self._lives.pop(end, None)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel_all, end)

    def _cancel_all(self, end: End) -> None:
        for (at, _), task in list(self._tasks.items()):
            if at is end:
                task.cancel()

    # ---- one call ----------------------------------------------------------------------------------------------------

    async def _serve(self, end: End, number: int, method: str, metadata: Any, data: bytes) -> None:
        context = Context(metadata)
        try:
            handler = await self._handler(SimpleNamespace(method=method, invocation_metadata=metadata))
            item = await self._answer(end, number, handler, data, context)
        except Aborted:
            assert context.failure is not None
            end.send(("error", number, *context.failure))
        except Exception as error:  # noqa: BLE001  # grpc answers so
            end.send(("error", number, grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}"))
        else:
            end.send(item)

    async def _handler(self, details: Any, at: int = 0) -> Any:
        if at < len(self._interceptors):
            return await self._interceptors[at].intercept_service(lambda told: self._handler(told, at + 1), details)
        found = (handler.service(details) for handler in self._handlers)
        return next(handler for handler in found if handler is not None)

    async def _answer(self, end: End, number: int, handler: Any, data: bytes, context: Context) -> tuple[Any, ...]:
        """Return the last that is sent."""
        encode = handler.response_serializer or bytes
        if handler.request_streaming:
            return "answer", number, encode(await handler.stream_unary(None, context))
        request = handler.request_deserializer(data)
        if not handler.response_streaming:
            return "answer", number, encode(await handler.unary_unary(request, context))
        async for message in handler.unary_stream(request, context):
            end.send(("item", number, encode(message)))
        return "end", number
