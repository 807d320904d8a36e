"""This module bounds what those may cost who have not shown that they belong to the job."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

MOST_STRANGERS = 64
"""The most connections of a listener that have not greeted yet."""

GREETING_SECONDS = 10.0
"""The time in which whoever has connected shows that it belongs to the job."""

_LINES, _WINDOW_SECONDS = 5, 60.0

_Guest = TypeVar("_Guest")


class Strangers(Generic[_Guest]):
    """A `Strangers` holds those who have connected and not greeted: so many at once; the oldest goes first.

    It is safe to use from several threads.

    Args:
        turn_out: ends the connection of one that goes. It closes no descriptor that a thread may be using.
        most: how many may wait at once.
    """

    def __init__(self, turn_out: Callable[[_Guest], None], most: int = MOST_STRANGERS):
        self._turn_out = turn_out
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[int, _Guest] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, guest: _Guest) -> None:
        """Let one more wait; where there are too many, the oldest is turned out."""
        with self._lock:
            oldest = self._waiting.pop(next(iter(self._waiting))) if len(self._waiting) >= self._most else None
            self._waiting[id(guest)] = guest
        if oldest is not None:
            self._turn_out(oldest)

    def leave(self, guest: _Guest) -> None:
        """Forget one who has greeted, or is gone."""
        with self._lock:
            self._waiting.pop(id(guest), None)


class CountedLog:
    """A `CountedLog` warns about strangers in a few lines a minute, and says how many more there would have been.

    Args:
        log: where they go.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic):
        self._log = log
        self._now = now
        self._lock = threading.Lock()
        self._since = -_WINDOW_SECONDS
        self._told = self._untold = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning, or count it: the first line of a later minute tells how many were not logged."""
        with self._lock:
            untold = 0
            if self._now() - self._since >= _WINDOW_SECONDS:
                untold, self._since, self._told, self._untold = self._untold, self._now(), 0, 0
            self._told += 1
            if self._told > _LINES:
                self._untold += 1
                return
        if untold:
            text += f" ({untold} more in the minute before)"
        self._log.warning(text, *arguments)
