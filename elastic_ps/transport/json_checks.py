"""This module checks JSON values that peers send: a check returns the value as the code uses it, or raises."""

from collections.abc import Callable
from enum import StrEnum
from math import isfinite
from reprlib import Repr
from typing import Any, TypeVar

Check = Callable[[Any], Any]
"""Takes a JSON value; raises ValueError with what it must be."""

MOST = 2**62
"""The largest whole number: a version, say, can still be counted on in numpy's int64."""

_Choice = TypeVar("_Choice", bound=StrEnum)

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def short(value: Any) -> str:
    """Return the beginning of a value's text, for messages: the value may be of any size."""
    return _SHORT.repr(value)


def integer(most: int = MOST, least: int = 0) -> Check:
    """Check a whole number from `least` to `most`."""

    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most} is expected")
        return value

    return check


def number(value: Any) -> float:
    """Check a finite number."""
    if type(value) is int and abs(value) <= MOST:
        return float(value)
    if type(value) is not float or not isfinite(value):
        raise ValueError("a finite number is expected")
    return value


def flag(value: Any) -> bool:
    """Check true or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false is expected")  # noqa: TRY004  # every check raises ValueError
    return value


def text(most: int, least: int = 0) -> Check:
    """Check a text of `least` to `most` characters that can be encoded."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise ValueError(f"a text of {least} to {most} characters is expected")
        value.encode()  # a lone surrogate raises UnicodeEncodeError, which is a ValueError
        return value

    return check


def choice(options: type[_Choice]) -> Callable[[Any], _Choice]:
    """Check one of a set of words."""

    def check(value: Any) -> _Choice:
        if not isinstance(value, str) or value not in set(options):
            raise ValueError(f"one of {', '.join(options)} is expected")
        return options(value)

    return check


def listed(each: Check, most: int = MOST, least: int = 0) -> Check:
    """Check a list; the check returns a tuple.

    Args:
        each: check of one value.
        most: values.
        least: values.
    """

    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise ValueError(f"a list of {least} to {most} values is expected")
        return tuple(map(each, value))

    return check


def record(*each: Check) -> Check:
    """Check a list of as many values as there are checks; the check returns a tuple."""

    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(each):
            raise ValueError(f"a list of {len(each)} values is expected")
        return tuple(one(part) for one, part in zip(each, value, strict=True))

    return check


def mapping(name: Check, each: Check) -> Check:
    """Check an object whose names and values pass a check each."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("an object is expected")  # noqa: TRY004  # every check raises ValueError
        return {name(key): each(part) for key, part in value.items()}

    return check
