"""This module holds what somebody beside the loop has found out about configurations worth trying."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TellingConfiguration:
    """A `TellingConfiguration` is one whose speed is not known well, and whose speed would improve the cluster's plan.

    Attributes:
        model: type of the jobs.
        servers: the servers of a job.
        workers: the workers of a job.
        relative_speed: what is expected of it, in samples a second, by the counts (servers, workers) that a job of the
            type has now: divided by the speed with these.
        spread: the part by which speeds there may differ from what is expected: 80% of the drawn worlds lie within.
        gain: what is gained if its speed becomes known, in slots in which a job trains at its top speed.
    """

    model: str
    servers: int
    workers: int
    relative_speed: tuple[tuple[int, int, float], ...]
    spread: float
    gain: float

    def speed_over(self, servers: int, workers: int) -> float | None:
        """Return the expected speed over that with other counts; None: nobody has asked for these."""
        return next((part for *at, part in self.relative_speed if at == [servers, workers]), None)


@dataclass(frozen=True)
class Telling:
    """A `Telling` is what was found out from the history up to one slot.

    Attributes:
        slot: number of the last slot whose decision was read; its outcome was not.
        configurations: those that are worth trying, in no order.
        scaling_seconds: what a job loses as it is scaled, and until tasks that it is given train with the others.
    """

    slot: int = -1
    configurations: tuple[TellingConfiguration, ...] = ()
    scaling_seconds: float = 0.0
