"""This module tells the time, which tests hold in their hand."""

import queue
import time
from contextlib import suppress
from typing import Protocol


class Clock(Protocol):
    """A `Clock` tells one cluster the time, and wakes it."""

    def now(self) -> float:
        """Return unix seconds."""

    def wait(self, seconds: float) -> None:
        """Return after so long, or when woken, also since the last wait."""

    def wake(self) -> None:
        """Let `wait` return. Safe from every thread, and in a signal handler."""


class SystemClock:
    """A `SystemClock` is the machine's; see `Clock`."""

    def __init__(self) -> None:
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()  # an Event may not be set in a signal handler

    def now(self) -> float:
        """See `Clock.now`."""
        return time.time()

    def wait(self, seconds: float) -> None:
        """See `Clock.wait`."""
        with suppress(queue.Empty):
            self._woken.get(timeout=seconds)
            while True:
                self._woken.get_nowait()

    def wake(self) -> None:
        """See `Clock.wake`."""
        self._woken.put(None)
