"""A node waits for a coordinator that is away, and may train on meanwhile; one that cannot waits no longer than this.

Where the coordinator was on another machine, which is gone, nobody else would end it. Pure.
"""

AWAY_SECONDS = 24 * 3600.0
"""So long a node that cannot train on waits for a coordinator that is away: a night and more, in which somebody may
bring it back; who ended sooner might be the last that has what was trained.
"""


class VainWait:
    """A `VainWait` knows for how long a node has neither trained nor heard its coordinator. It is not thread-safe.

    Args:
        seconds: that it may wait so.
    """

    def __init__(self, seconds: float = AWAY_SECONDS):
        self._seconds = seconds
        self._trained: int | None = None
        self._since = 0.0

    def look(self, now: float, trained: int | None, awake: bool) -> bool:
        """Look how things are; return whether it has waited for long enough.

        Args:
            now: seconds of a clock that only goes forward.
            trained: a number that changes as long as this node has a part in training; None: the coordinator answers.
            awake: this node has run since the last look; else it could not hear anybody.
        """
        if trained is None or trained != self._trained or not awake:
            self._trained, self._since = trained, now
        return now - self._since >= self._seconds
