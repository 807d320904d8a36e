"""This module tells the live loop how long jobs of its cluster take to start."""

import logging

from dl2_scheduler.live.history import History
from dl2_scheduler.replay.costs import RecentCosts

log = logging.getLogger(__name__)

_RECENT = 200, 40_000  # slots with jobs, and states of these, that are read first: a loop cannot wait for all of them


class StartSeconds:
    """`StartSeconds` say, when asked at a slot's start, how long a job takes to start, in seconds.

    They are the mean of the last starts in the cluster's history; where it has none yet, what was measured elsewhere.

    Args:
        history: the history of the cluster.
    """

    def __init__(self, history: History):
        self._history = history
        self._seen = history.recent(*_RECENT)
        self._costs = RecentCosts()

    def __call__(self) -> float:
        """Return them; the slot that begins is not written yet."""
        try:
            for slot in self._history.slots(self._seen):
                self._seen = slot.snapshot.slot
                self._costs.observe(slot)
        except Exception:  # no cluster stands still for its past
            log.exception("how long jobs take to start is known as before")
        return self._costs.scaling.start
