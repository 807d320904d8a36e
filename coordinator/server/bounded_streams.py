"""Open streams to nodes and launchers are bounded: who does not read costs the coordinator no memory."""

import asyncio
from typing import Any

MOST = 1000
"""Unread messages after which a stream ends. Its reader opens another, which begins with all that stands."""


class BoundedStream:
    """A bounded stream keeps the messages for one open stream, in order.

    Args:
        latest: each message says everything, so one that was not read gives way to the next.
    """

    def __init__(self, latest: bool = False):
        self._latest = latest
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._ended = False

    def put(self, message: Any) -> None:
        """Add a message; a stream that has ended takes none."""
        if self._ended:
            return
        if self._latest:
            self._clear()
        elif self._queue.qsize() >= MOST:
            self.end()
            return
        self._queue.put_nowait(message)

    def end(self) -> None:
        """End the stream: what was not read is not worth reading any more."""
        self._ended = True
        self._clear()
        self._queue.put_nowait(None)

    async def get(self) -> Any:
        """Return the next message once there is one; None at the stream's end."""
        return await self._queue.get()

    def _clear(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
