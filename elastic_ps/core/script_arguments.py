"""This module checks what a script gives to our functions: what is wrong would fail far from where it was given."""

from operator import index
from typing import Any

import numpy as np

from elastic_ps.core.errors import ConfigurationError

MOST = 2**63 - 1
"""The largest whole number of a script, unless less is said: numpy and the messages of the job can count so far."""


def whole_number(what: str, given: Any, least: int | None = None, most: int = MOST) -> int:
    """Return an argument as an int; numpy's and PyTorch's integers are taken, 2.0 is not, as in `range`.

    Args:
        what: the argument is called.
        given: by the script.
        least: that it may be; None: whoever takes it says so.
        most: likewise.

    Raises:
        ConfigurationError: it is no whole number, or not in this range.
    """
    try:
        number = index(given)
    except TypeError:
        raise ConfigurationError(f"{what} must be a whole number, not {given!r:.80}") from None
    if least is not None and number < least:
        raise ConfigurationError(f"{what} must be {least} or more, not {number}")
    if number > most:
        raise ConfigurationError(f"{what} must be at most {most}, not {number!r:.80}")
    return number


def is_number_of_numpy(value: object) -> bool:
    """Return whether it is one real number that numpy has made, also as an array without axes."""
    if not isinstance(value, np.generic | np.ndarray):
        return False
    return value.ndim == 0 and np.issubdtype(value.dtype, np.number) and not np.iscomplexobj(value)


def yes_or_no(what: str, given: Any) -> bool:
    """Return an argument as a bool; numpy's are taken, "False" is not, which Python takes for true, nor is None.

    Args:
        what: the argument is called.
        given: by the script.

    Raises:
        ConfigurationError: it is neither True nor False.
    """
    if not isinstance(given, bool | np.bool_):
        raise ConfigurationError(f"{what} must be True or False, not {given!r:.80}")
    return bool(given)


def check_function(what: str, given: Any) -> None:
    """Check that an argument can be called; None is one that was left out. Raises ConfigurationError."""
    if given is not None and not callable(given):
        raise ConfigurationError(f"{what} must be a function, not {given!r:.80}; or leave it out")
