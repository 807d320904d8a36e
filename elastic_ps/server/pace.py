"""How fast snapshots flow beside training. Pure."""

from dataclasses import dataclass

FREE_BYTES = 4 << 20
"""What flows at once: a small model is not worth waiting for."""

STEPS = 12
SECONDS = 10.0
"""A snapshot is spread over so many updates, or seconds where these are over sooner. To copy, send and receive it and
to touch its new memory first costs the two ends about 2.5 ms a MiB, measured on 2 cores: at once, that doubles a step.
"""


@dataclass
class Pace:
    """An even share of a snapshot for each update.

    Args:
        total: bytes of the snapshot.
        started: seconds.

    Attributes:
        steps: updates since.
        sent: bytes so far.
    """

    total: int
    started: float
    steps: int = 0
    sent: int = 0

    def allows(self, now: float) -> bool:
        """Whether more may be sent at `now`."""
        share = max(self.steps / STEPS, (now - self.started) / SECONDS)
        return share >= 1 or self.sent < FREE_BYTES + share * self.total
