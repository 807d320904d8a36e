"""One connection to a server: a sender and a receiver thread around it."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ElasticError
from elastic_ps.transport.base import Buffer, Connection
from elastic_ps.transport.frames import Frame


class Receiver(Protocol):
    """Who gets what a link receives."""

    def buffers(self, server: NodeId, frame: Frame) -> Sequence[Buffer]:
        """Memory for the frame's payload; may be scratch."""

    def arrived(self, server: NodeId, frame: Frame) -> None:
        """The frame is complete."""

    def lost(self, link: "Link", error: ElasticError) -> None:
        """The connection broke; called at most once, never after `close`."""


class Link:
    """See the module.

    Args:
        server: the peer.
        connection: open, and greeted.
        receiver: called from the link's own threads.
    """

    def __init__(self, server: NodeId, connection: Connection, receiver: Receiver):
        self.server = server
        self._connection = connection
        self._receiver = receiver
        self._queue: queue.SimpleQueue[tuple[Frame, Sequence[Buffer]] | Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = False
        self._failing = threading.Lock()
        for name, loop in (("send", self._send), ("receive", self._receive)):
            threading.Thread(target=self._guarded, args=(loop,), name=f"{name}-{server}", daemon=True).start()

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame; the payload's memory must stay as it is until the peer has answered."""
        self._queue.put((frame, payload))

    def flush(self, timeout: float) -> bool:
        """Wait until what was queued has been handed to the transport; False where it was not within `timeout` s."""
        flushed = threading.Event()
        self._queue.put(flushed.set)
        return flushed.wait(timeout)

    def close(self) -> None:
        """Break the connection; nothing more is received, what is queued may be lost."""
        with self._failing:
            self._closed = True
        self._queue.put(None)
        self._connection.close()

    def _send(self) -> None:
        while (item := self._queue.get()) is not None:
            if callable(item):
                item()
            else:
                self._connection.send(*item)

    def _receive(self) -> None:
        while not self._closed:
            frame = self._connection.receive()
            if frame.payload_bytes:
                self._connection.receive_into(self._receiver.buffers(self.server, frame))
            self._receiver.arrived(self.server, frame)

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except Exception as error:  # noqa: BLE001  # whatever ends a thread must reach its owner
            with self._failing:
                if self._closed:
                    return
                self._closed = True
            self._connection.close()
            self._queue.put(None)
            known = error if isinstance(error, ElasticError) else ElasticError(f"{loop.__name__}: {error!r}")
            self._receiver.lost(self, known)
