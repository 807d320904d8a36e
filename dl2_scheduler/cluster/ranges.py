"""This module says how large the numbers may be that people and files give.

What is larger is a slip, and no array or sum could hold it. Each bound is far above anything real, and so small that
products of two of them are finite.
"""

from dl2_scheduler.cluster.errors import BadInput

MOST_EPOCHS = 1e9
MOST_SAMPLES = 1e15
"""Of an epoch."""

LATEST = 1e11
"""Seconds since a cluster began: three thousand years."""

MOST_AMOUNT = 1e19
"""Of a resource, in bytes too."""

LEAST_SPEED = 1e-9
"""Samples a second of a job: one in thirty years."""

MOST_SPEED = 1e12
"""Likewise, at most."""

MOST_WEIGHT = 1e9
"""Of a model in a mix."""

MOST_INSTANCES = 1e6
"""Of a task in a public trace."""

MOST_WHOLE = (1 << 63) - 1
"""Of a whole number: arrays and databases have no larger ones."""

LONGEST_NAME = 1000
"""Characters of a job's, a model's or a node's name."""


def check_range(what: str, value: float, most: float, *, zero: bool = True) -> None:
    """Refuse a number that is out of range.

    Args:
        what: the number's name, for the message.
        value: the value that was given.
        most: the largest that it may be.
        zero: whether it may be 0.

    Raises:
        BadInput: it is not finite, negative, or too large.
    """
    if not ((value >= 0 if zero else value > 0) and value <= most):  # NaN neither
        least = "from 0" if zero else "above 0"
        raise BadInput(f"{what} is {_shown(value)}: give a number {least}, at most {most:g}")


def _shown(value: float) -> str:
    """Return a number for people; of whole numbers some are larger than any float."""
    try:
        return f"{value:g}"
    except OverflowError:
        return "a number of more than 300 digits"


def or_not_known(value: float, most: float, least: float = 0.0) -> float:
    """Return a number that a running job tells of itself; 0, which says that it is not known, where it cannot be.

    What one job tells is written down, and counted with, together with what all others tell.

    Args:
        value: the number that was told, NaN too.
        most: the largest that it may be.
        least: the smallest.
    """
    return value if least <= value <= most else 0.0
