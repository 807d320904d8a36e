"""This module gives a connection a queue and a thread that sends: a slow peer never blocks who has something for it."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ElasticError, PeerLost, ProtocolError
from elastic_ps.transport.base import Buffer, Connection
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PingMeta, PongMeta
from elastic_ps.transport.frames import Frame

_PROBES = (Kind.PING, Kind.PONG)

_Item = tuple[Frame, Sequence[Buffer], Callable[[], None] | None]


class Link:
    """A `Link` is one peer's connection, after the greeting.

    Args:
        peer: the node at the other end.
        connection: open.
        lost: called at most once, when sending (or what else `guard` runs) fails and the link has closed for it; never
            after `close`.
        idle: called (from the sender's thread) whenever the queue has become empty, but for a sign of life.
    """

    def __init__(
        self,
        peer: NodeId,
        connection: Connection,
        lost: Callable[["Link", ElasticError], None],
        idle: Callable[[], None] = lambda: None,
    ):
        self.peer = peer
        self.connection = connection
        self.closed = False
        self._lost = lost
        self._idle = idle
        self._queue: deque[_Item] = deque()
        self._backlog = 0
        self._probing = False  # a PING waits behind what is to be sent before it
        self._filled = threading.Condition()
        threading.Thread(target=self.guard, args=(self._run,), name=f"send-{peer}", daemon=True).start()

    def enqueue(self, frame: Frame, payload: Sequence[Buffer] = (), sent: Callable[[], None] | None = None) -> None:
        """Send a frame if it is small, nothing waits and the connection has room; else queue it.

        Args:
            frame: to send.
            payload: its memory must stay as it is until it is sent.
            sent: called once the transport has taken it, from the sender's thread, or `withdraw` has dropped it: its
                memory may be written to.
        """
        with self._filled:
            if self.closed:
                return
            if not self._queue and sent is None and self.connection.offer(frame, payload):
                return
            self._add(frame, payload, sent)

    def _add(self, frame: Frame, payload: Sequence[Buffer], sent: Callable[[], None] | None) -> None:
        self._queue.append((frame, payload, sent))
        if payload:
            self._backlog += sum(part.nbytes for part in payload)
        self._filled.notify_all()

    @property
    def backlog(self) -> int:
        """The payload bytes that wait, those of the frame that is being sent included."""
        return self._backlog

    @property
    def is_idle(self) -> bool:
        """Return whether everything has been sent, signs of life aside."""
        with self._filled:
            return self._holds_probes_alone()

    def _holds_probes_alone(self) -> bool:
        return not self._queue or all(frame.kind in _PROBES for frame, _, _ in self._queue)

    def oldest_version(self) -> int | None:
        """Return the version of the frame that has waited longest; None: none waits."""
        with self._filled:
            return self._queue[0][0].version if self._queue else None

    @property
    def signs(self) -> tuple[int, int, bool]:
        """The signs of the peer's life: bytes that came; bytes that were sent; whether a PING waits behind some."""
        return *self.connection.moved, self._probing

    def probe(self) -> None:
        """Ask the peer for a sign of life."""
        frame = Frame(PingMeta())
        with self._filled:
            if self.closed or (not self._queue and self.connection.offer(frame)):
                return
            self._probing = True
            self._add(frame, (), self._probed)

    def _probed(self) -> None:
        self._probing = False

    def receive(self) -> Frame:
        """Wait for the next frame that is no probe (see `Connection.receive`); those are answered here."""
        while (frame := self.connection.receive()).kind in _PROBES:
            if frame.payload_bytes:
                raise ProtocolError(f"{frame.kind.name} with {frame.payload_bytes} bytes")
            if frame.kind is Kind.PING:
                self.enqueue(Frame(PongMeta()))
        return frame

    def check_open(self) -> None:
        """Raise PeerLost where the link has closed: its peer may have opened another, on which it begins anew."""
        if self.closed:
            raise PeerLost(self.peer, "connection closed here")

    def withdraw(self) -> None:
        """Drop the frames whose sending has not begun, but for signs of life."""
        with self._filled:
            waiting = list(islice(self._queue, 1, None))
            kept = [item for item in waiting if item[0].kind in _PROBES]
            self._backlog -= sum(part.nbytes for _, payload, _ in waiting for part in payload)
            self._queue = deque([*islice(self._queue, 1), *kept])
        for frame, _, sent in waiting:
            if sent is not None and frame.kind not in _PROBES:
                sent()

    def flush(self, timeout: float) -> bool:
        """Wait until what was queued has been sent; return False where it was not within `timeout` seconds."""
        with self._filled:
            return self._filled.wait_for(lambda: not self._queue or self.closed, timeout) and not self.closed

    def close(self) -> bool:
        """Break the connection; what waits is lost. Return False where that had been done."""
        with self._filled:
            was_open, self.closed = not self.closed, True
            self._queue.clear()
            self._filled.notify_all()
        self.connection.close()
        return was_open

    def guard(self, body: Callable[[], None]) -> None:
        """Run the body of a thread that serves this link; an error that ends it closes the link."""
        try:
            body()
        except Exception as error:  # noqa: BLE001  # whatever ends the thread must reach the owner
            if self.close():
                name = threading.current_thread().name
                self._lost(self, error if isinstance(error, ElasticError) else ElasticError(f"{name}: {error!r}"))

    def _run(self) -> None:
        while (item := self._next()) is not None:
            frame, payload, sent = item
            self.connection.send(frame, payload)
            if self._done(payload) and frame.kind not in _PROBES:
                self._idle()
            if sent is not None:
                sent()

    def _next(self) -> _Item | None:
        with self._filled:
            self._filled.wait_for(lambda: self._queue or self.closed)
            return None if self.closed else self._queue[0]

    def _done(self, payload: Sequence[Buffer]) -> bool:
        with self._filled:
            if self._queue:
                self._queue.popleft()
            if payload:
                self._backlog -= sum(part.nbytes for part in payload)
            if not self._queue:
                self._filled.notify_all()
            return self._holds_probes_alone()
