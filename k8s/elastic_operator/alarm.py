"""This module wakes whoever keeps a job: at once, or when it is time."""

import asyncio


class Alarm:
    """An `Alarm` wakes one who looks at everything then. Of the times that it is set for, the earliest counts.

    Whoever is woken sets it anew for what is due later. Were each time kept, each look at something that lasts would
    bring another one, beside those that changes bring: they would become ever more.
    """

    def __init__(self) -> None:
        self._rings = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Wake now."""
        self._rings.set()

    def set(self, seconds: float | None) -> None:
        """Wake in so many seconds, at the latest; None: not for this."""
        if seconds is None:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._is_due)

    async def wait(self) -> None:
        """Return when woken, also since the last wait."""
        await self._rings.wait()
        self._rings.clear()

    def close(self) -> None:
        """Wake nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_due(self) -> None:
        self._timer = None
        self.ring()
