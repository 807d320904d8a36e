"""A process that has been stopped before it joined its job: nobody but its launcher can notice, as no lease runs."""

import time

from elastic_ps.launch.processes.child_process import ChildProcess

STILL_SECONDS = 15.0
"""How long a process that its job does not have may be stopped."""

LOOK_SECONDS = 5.0


class Stillness:
    """A `Stillness` looks every few seconds whether a process is stopped (SIGSTOP).

    Args:
        process: that has just been started.

    Attributes:
        look_at: monotonic seconds of the next look.
    """

    def __init__(self, process: ChildProcess):
        self._process = process
        self._since: float | None = None
        self.look_at = time.monotonic() + LOOK_SECONDS

    def look(self) -> bool:
        """Look if it is time to; return whether the process has been stopped for `STILL_SECONDS`, at each such look."""
        now = time.monotonic()
        if now < self.look_at:
            return False
        self.look_at = now + LOOK_SECONDS
        if not self._process.is_stopped:
            self._since = None
        elif self._since is None:
            self._since = now
        return self._since is not None and now - self._since >= STILL_SECONDS
