"""A worker keeps to its share of the machine's cores, where nothing else limits it."""

import time
from collections.abc import Callable


class CoreShare:
    """A `CoreShare` sleeps after steps that took more than the share. Used by the script's thread.

    Args:
        share: cores that the process may use on average; 0: as many as it likes.
        now: seconds of the wall's clock.
        used: seconds of processor time that all threads of the process have taken.
        rest: sleep so many seconds.
    """

    def __init__(
        self,
        share: float,
        now: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        rest: Callable[[float], None] = time.sleep,
    ):
        self._share = share
        self._now = now
        self._used = used
        self._rest = rest
        self._last: tuple[float, float] | None = None
        self._owed = 0.0

    def stepped(self) -> None:
        """Wait, after a step, until what was used beyond the share is made up for; nothing is saved up."""
        if not self._share:
            return
        now, used = self._now(), self._used()
        if self._last is not None:
            passed, taken = now - self._last[0], used - self._last[1]
            self._owed = max(0.0, self._owed + taken - self._share * passed)
        self._last = now, used
        if self._owed:
            self._rest(self._owed / self._share)
