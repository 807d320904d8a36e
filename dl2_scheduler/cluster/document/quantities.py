"""This module reads amounts of a resource as Kubernetes writes them."""

import re

from dl2_scheduler.cluster.errors import BadInput

_UNITS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_UNITS |= {f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?\d{1,2})|([a-zA-Z]{0,2}))")


def quantity(text: str | float) -> float | None:
    """Return the value of "2", "50m", "-1.5", "1Gi", "1e3", or a number; None where it is none of them."""
    match = _QUANTITY.fullmatch(str(text))
    unit = _UNITS.get(match[3] or "") if match else None
    if match is None or unit is None:
        return None
    return float(match[1]) * unit * 10.0 ** int(match[2] or 0)


def amount(text: str | float) -> float:
    """Return the value of a quantity without a sign, as people write it in a document.

    Raises:
        BadInput: it is none.
    """
    found = None if str(text).startswith(("+", "-")) else quantity(text)
    if found is None:
        raise BadInput(f"{text} is no amount: give a number from 0 on, or one with a unit, as in 50m or 1Gi")
    return found
