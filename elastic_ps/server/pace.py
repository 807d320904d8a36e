"""How fast snapshots flow beside training. Pure."""

from dataclasses import dataclass

FREE_BYTES = 4 << 20
"""What flows at once: a small model is not worth waiting for."""

RATE = 100 << 20
"""Bytes a second. To copy, send and receive a snapshot and to touch its new memory first costs the two ends about
2.5 ms a MiB, measured on 2 cores: this is a quarter of one core's time. Faster, it shows in every step.
"""

SECONDS = 10.0
"""What a snapshot takes at most, however large."""


@dataclass
class Pace:
    """An even flow.

    Args:
        total: bytes of the snapshot.
        started: seconds.

    Attributes:
        sent: bytes so far.
    """

    total: int
    started: float
    sent: int = 0

    def allows(self, now: float) -> bool:
        """Whether more may be sent at `now`."""
        elapsed = now - self.started
        return elapsed >= SECONDS or self.sent < FREE_BYTES + elapsed * max(RATE, self.total / SECONDS)
