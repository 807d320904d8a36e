"""`Constants` rounds the constants of an update as a framework's operators read them.

An update whose learning rate differs in the last bit differs in the last bits of every weight. The rounding is the
same on every server, so it costs nothing in determinism.
"""

# The reference is MXNet 1.9.1: it hands an operator's constants over as text, and dmlc-core's parser rounds in its own
# way: digits after the point as a quotient of doubles, the exponent as a power of ten in float32.

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

_MAX_DIGITS = 19  # the parser ignores further digits after the point
_MAX_EXPONENT = 38


@lru_cache(maxsize=256)
def parsed_float(value: float) -> np.float32:
    """Return the float32 that a framework's operator gets for a Python number that it is told as text."""
    if not isfinite(value):
        return np.float32(value)
    digits, _, exponent = repr(abs(float(value))).partition("e")
    whole, _, fraction = digits.partition(".")
    fraction = fraction[:_MAX_DIGITS]
    result = np.float32(int(whole) % 2**64)
    if fraction:
        result += np.float32(float(int(fraction)) / float(10 ** len(fraction)))
    power = min(abs(int(exponent or 0)), _MAX_EXPONENT)
    scale = np.float32(1)
    for factor, times in ((np.float32(1e8), power // 8), (np.float32(10), power % 8)):
        for _ in range(times):
            scale *= factor
    result = result / scale if exponent.startswith("-") else result * scale
    return np.float32(-result if value < 0 else result)


@dataclass(frozen=True)
class Constants:
    """`Constants` are numbers for arrays of one dtype, rounded as on each of their ways into an operator."""

    dtype: np.dtype[Any]

    def argument(self, value: float) -> Any:
        """Return an operator's float argument."""
        return self.dtype.type(parsed_float(value))

    def complement(self, value: float) -> Any:
        """Return 1 - an operator's float argument, taken in float32."""
        return self.dtype.type(np.float32(1) - parsed_float(value))

    def listed(self, value: float) -> Any:
        """Return a float that reaches an operator correctly rounded: in a tuple (lrs, wds) or in an array."""
        return self.dtype.type(np.float32(value))

    def operand(self, value: float) -> Any:
        """Return the number in `array * number`: a double up to the array's dtype."""
        return self.dtype.type(value)

    def bound(self, value: float | None) -> Any:
        """Return an operator's clip argument: None, 0 and below are no bound, which is None here."""
        return self.argument(value) if value and value > 0 else None
