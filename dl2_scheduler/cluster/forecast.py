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
