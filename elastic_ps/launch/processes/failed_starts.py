"""A job that trains goes on without processes that cannot start: they are tried again, after pauses."""

import math

from elastic_ps.core.configuration import Role
from elastic_ps.launch.decide import LocalProcess, WantedNodes, pause


class FailedStarts:
    """`FailedStarts` knows whether a job has had all its nodes, and which processes have ended since without joining.

    A node joins when it comes to belong to the job's configuration, not when it registers: it rehearses in between.
    Before the job was whole, and when all processes start again for a restore, such an end is a death as any other.
    """

    def __init__(self) -> None:
        self._was_whole = False
        self._ends: dict[Role, int] = {}  # in a row
        self._due: dict[Role, float] = {}  # monotonic seconds before which none is started

    def observe(self, wanted: WantedNodes) -> None:
        """Take the coordinator's latest word."""
        is_whole = 0 < sum(wanted.counts.values()) <= wanted.members
        self._was_whole = (self._was_whole or is_whole) and not wanted.restarting and wanted.members > 0
        for role in [role for role in self._ends if not (wanted.starting.get(role) or wanted.joining)]:
            self._ends.pop(role)
            self._due.pop(role, None)

    def ended(self, process: LocalProcess, now: float) -> float | None:
        """Take note of a death; return the seconds until another process is started, None where it has to count.

        Args:
            process: that has died.
            now: monotonic seconds.
        """
        return None if process.joined or not self._was_whole else self.rest(process, now)

    def rest(self, process: LocalProcess, now: float) -> float:
        """Start no process of this one's role for a while, longer each time; return for how many seconds.

        Args:
            process: that has ended.
            now: monotonic seconds.
        """
        self._ends[process.role] = self._ends.get(process.role, 0) + 1
        seconds = pause(self._ends[process.role])
        self._due[process.role] = now + seconds
        return seconds

    def resting(self, now: float) -> frozenset[Role]:
        """Return the roles of which none is started now."""
        self._due = {role: due for role, due in self._due.items() if due > now}
        return frozenset(self._due)

    @property
    def deadline(self) -> float:
        """The monotonic seconds at which the next pause is over."""
        return min(self._due.values(), default=math.inf)
