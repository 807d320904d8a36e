"""Constants as MXNet's operators read them.

MXNet hands an operator's constants over as text, and dmlc-core's parser rounds in its own way: digits after the
point as a quotient of doubles, the exponent as a power of ten in float32. An update with another last bit in its
learning rate has other last bits in every weight, so we read numbers as MXNet does.
"""

from functools import lru_cache
from math import isfinite

import numpy as np

_MAX_DIGITS = 19  # dmlc-core ignores further digits after the point
_MAX_EXPONENT = 38


@lru_cache(maxsize=256)
def mxnet_float(value: float) -> np.float32:
    """The float32 that an operator of MXNet 1.9.1 gets for a Python number."""
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
    return -result if value < 0 else result
