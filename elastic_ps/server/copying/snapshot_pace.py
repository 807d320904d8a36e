"""This module decides how fast snapshots flow beside training. It is pure."""

from dataclasses import dataclass

FREE_BYTES = 4 << 20
"""What flows at once: a small model is not worth waiting for."""

RATE = 25 << 20
"""Bytes a second of an old owner. To copy, send and receive a snapshot, to touch its memory first and then that of the
records that follow it, costs the two ends several ms a MiB, measured on 2 cores: four times as fast, it doubles the
step of a job that does nothing but exchange.
"""

SECONDS = 15.0
"""What a snapshot takes at most, however large."""


@dataclass
class SnapshotPace:
    """A `SnapshotPace` spreads a snapshot evenly over time.

    Args:
        total: bytes of the snapshot.
        started: seconds.
        streams: how many streams of this owner share the rate.

    Attributes:
        sent: bytes so far.
    """

    total: int
    started: float
    streams: int = 1
    sent: int = 0

    def allows(self, now: float) -> bool:
        """Return whether more may be sent at `now`."""
        elapsed = now - self.started
        return elapsed >= SECONDS or self.sent < FREE_BYTES + elapsed * max(RATE / self.streams, self.total / SECONDS)
