"""This module holds what people are told about a job's future."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExpectedTime:
    """An `ExpectedTime` says when something will come about.

    Attributes:
        at: unix seconds: it is as likely to come before as after.
        low: unix seconds: it comes before with a chance of 10%.
        high: unix seconds: it comes after with a chance of 10%.
    """

    at: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """A `Forecast` says when a job will start and end.

    Attributes:
        made: unix seconds: as of when.
        start: when it will train for the first time; None: it has started, or nobody knows.
        end: when it will have trained all its epochs; None: nobody knows.
    """

    made: float
    start: ExpectedTime | None
    end: ExpectedTime | None

    def is_of_another(self, submitted: float, now: float) -> bool:
        """Return whether it was made for an earlier job of the name that one has which was submitted then.

        Args:
            submitted: unix seconds; a time of the future came by another clock, and tells nothing.
            now: unix seconds.
        """
        return self.made < submitted <= now
