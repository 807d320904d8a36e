"""This module reads lengths of time as people write them, and writes them for people."""

import math
import re

from dl2_scheduler.cluster.errors import BadInput

MOST_SECONDS = 30 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")


def seconds(text: str | float) -> float:
    """Return the seconds of "30", "30s", "5m", "2h", "500ms", or a number.

    Raises:
        BadInput: it is none of them, not above 0, or above `MOST_SECONDS`.
    """
    value = _read(text)
    if value > MOST_SECONDS:
        raise BadInput(f"{text} is longer than {MOST_SECONDS / 3600:g}h: give less")
    return value


def bounded(text: str | float) -> float:
    """Return what `seconds` does; of what is longer `MOST_SECONDS`, as nobody is there whom a refusal could reach.

    Raises:
        BadInput: it is no length of time, or not above 0.
    """
    return min(_read(text), MOST_SECONDS)


def _read(text: str | float) -> float:
    match = _DURATION.fullmatch(str(text))
    value = float(match[1]) * _UNITS[match[2] or "s"] if match else math.nan
    if not value > 0:
        raise BadInput(f"{text} is no length of time above 0: give seconds, or a number with ms, s, m or h, as in 30s")
    return value


def left(since: float, length: float, now: float) -> float:
    """Return what is left of a length of time; nothing where the clock was set back since, by more than that length.

    Args:
        since: when it began, in seconds by a clock that may be set.
        length: seconds.
        now: by the same clock.
    """
    found = since + length - now
    return found if 0.0 < found <= 2 * length else 0.0


def in_words(length: float) -> str:
    """Return about how long some seconds are, for people."""
    if length < 1:
        return f"{max(length, 0.0):.1g} s"
    if length < 100:
        return f"{length:.0f} s"
    return f"{length / 60:.0f} min" if length < 6000 else f"{length / 3600:.0f} h"
