"""This module does what PyTorch's operations of these names do to elements, with the same roundings.

On a CPU they multiply and add in one rounding where they can. Ours do so for float32; of float64, which no wider type
holds the products of, each operation rounds, and the last bits differ from PyTorch's.
"""

from typing import Any

import numpy as np

from elastic_ps.core.segments import Array
from elastic_ps.native.fused import multiply_add

SMALL_WEIGHT = 0.5
"""From here on `lerp` reckons from the other end."""


def add(a: Array, b: Array, alpha: float, out: Array) -> None:
    """Set `out` to a + alpha * b.

    Args:
        a: what is added to.
        b: what is added, `alpha` times.
        alpha: a number.
        out: `a`, `b`, or other memory.
    """
    _fused(a.dtype.type(alpha), b, a, out)


def addcmul(total: Array, a: Array, b: Array, value: float, work: Array) -> None:
    """Add value * a * b to `total`.

    Args:
        total: changed in place.
        a: multiplied by `value` first.
        b: the other factor.
        value: a number.
        work: memory that is used up.
    """
    np.multiply(a, total.dtype.type(value), out=work)
    _fused(work, b, total, total)


def addcdiv(total: Array, a: Array, b: Array, value: float, work: Array) -> None:
    """Add value * a / b to `total`.

    Args:
        total: changed in place.
        a: multiplied by `value` first.
        b: the divisor.
        value: a number.
        work: memory that is used up; it may be `b`.
    """
    np.divide(np.multiply(a, total.dtype.type(value)), b, out=work)
    total += work


def lerp(total: Array, end: Array, weight: float, work: Array) -> None:
    """Move `total` by `weight` of the way to `end`.

    Args:
        total: changed in place.
        end: where the way ends.
        weight: a number from 0 to 1.
        work: memory that is used up.
    """
    kind = total.dtype.type
    np.subtract(end, total, out=work)
    if abs(weight) < SMALL_WEIGHT:
        _fused(kind(weight), work, total, total)
    else:
        _fused(kind(weight) - kind(1), work, end, total)


def _fused(a: Any, b: Array, c: Array, out: Array) -> None:
    if out.dtype == np.float32:
        multiply_add(a, b, c, out)
    else:
        np.add(np.multiply(a, b), c, out=out)
