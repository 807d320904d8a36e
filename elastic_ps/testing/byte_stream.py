"""This module carries bytes from one end of a connection in memory to the other."""

from collections import deque
from threading import Condition


class ByteStream:
    """A `ByteStream` holds bytes on their way from one end to the other.

    Args:
        capacity: bytes that it takes before its sender waits.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._changed = Condition()
        self._chunks: deque[memoryview] = deque()
        self._waiting = 0
        self._ended = False  # nothing more is written
        self._broken = False  # nothing more is read

    def wait_for_room(self) -> bool:
        """Wait until the stream takes bytes; return False where it does not any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._broken or self._waiting < self._capacity)
            return not self._ended and not self._broken

    def write(self, data: bytes | memoryview) -> None:
        """Put bytes into the stream, at once, if somebody may read them."""
        with self._changed:
            if data and not self._ended and not self._broken:
                self._chunks.append(memoryview(data))
                self._waiting += len(data)
                self._changed.notify_all()

    def fill(self, view: memoryview) -> bool:
        """Read exactly `view`; return False where the stream ends before."""
        while view.nbytes:
            with self._changed:
                self._changed.wait_for(lambda: self._chunks or self._ended or self._broken)
                if self._broken or not self._chunks:
                    return False
                chunk = self._chunks.popleft()
                got = min(view.nbytes, chunk.nbytes)
                view[:got] = chunk[:got]
                if got < chunk.nbytes:
                    self._chunks.appendleft(chunk[got:])
                self._waiting -= got
                self._changed.notify_all()
            view = view[got:]
        return True

    def end(self) -> None:
        """Write nothing more. What has been written is still read."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abort(self) -> None:
        """Read nothing more."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()
