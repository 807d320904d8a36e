"""This module words forecasts for people: clock times of this machine, with the date where it is another day's."""

import math
from datetime import datetime
from typing import Protocol

from protos import cluster_pb2 as pb

_SHORT = 120.0  # seconds: an interval below is told in seconds


class Expected(Protocol):
    """See `cluster.forecast.ExpectedTime`, which it is, or its message."""

    @property
    def at(self) -> float: ...  # noqa: D102
    @property
    def low(self) -> float: ...  # noqa: D102
    @property
    def high(self) -> float: ...  # noqa: D102


def start_of(forecast: pb.Forecast) -> Expected | None:
    """Return when a job starts; None: it has, or nobody knows."""
    return forecast.start if forecast.HasField("start") else None


def end_of(forecast: pb.Forecast) -> Expected | None:
    """Return when a job ends; None: nobody knows."""
    return forecast.end if forecast.HasField("end") else None


def clock_interval(expected: Expected | None, now: float) -> str:
    """Return the times between which an event comes about with a chance of 80%; "-": nobody knows.

    Args:
        expected: the event.
        now: unix seconds.
    """
    if expected is None:
        return "-"
    is_short = expected.high - expected.low < _SHORT
    unit = 1.0 if is_short else 60.0
    high = math.ceil(expected.high / unit) * unit  # what is told is never narrower than what is meant
    return f"{_clock(expected.low, now, is_short)}–{_clock(high, expected.low, is_short)}"


def clock_sentence(expected: Expected | None, made: float, now: float) -> str:
    """Return when an event comes about, in words; "-": nobody knows.

    Args:
        expected: the event.
        made: unix seconds: as of when.
        now: unix seconds.
    """
    if expected is None:
        return "-"
    at = _clock(expected.at, now, expected.high - expected.low < _SHORT)
    return f"{at}, with a chance of 80% {clock_interval(expected, now)}, as of {_clock(made, now, True)}"


def _clock(at: float, beside: float, with_seconds: bool) -> str:
    """Return a time, with its date where it is another one than that of `beside`."""
    when, other = (datetime.fromtimestamp(each).astimezone() for each in (at, beside))
    text = f"{when:%H:%M:%S}" if with_seconds else f"{when:%H:%M}"
    if when.date() == other.date():
        return text
    return f"{when.day} {when:%b} {text}" if when.year == other.year else f"{when.day} {when:%b %Y} {text}"
