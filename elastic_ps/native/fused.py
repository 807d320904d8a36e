"""This module multiplies and adds in one rounding, as processors' instructions do and numpy does not."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.native.library import address, library

Float32 = NDArray[np.float32]


def multiply_add(a: Float32 | np.float32, b: Float32, c: Float32, out: Float32) -> None:
    """Set `out` to a * b + c, rounded once. All are contiguous, of one axis and one length, or `a` is one number.

    Args:
        a: factors.
        b: other factors.
        c: what is added.
        out: `b`, `c`, or memory that has nothing in common with them, nor with `a`.
    """
    found = library()
    if found is None:
        out[...] = _by_doubles(a, b, c)
        return
    factors = a if isinstance(a, np.ndarray) else np.array([a], np.float32)
    step = 1 if isinstance(a, np.ndarray) else 0
    places = [ctypes.c_void_p(address(array)) for array in (factors, b, c, out)]
    found.fused_multiply_add(ctypes.c_int64(len(out)), places[0], ctypes.c_int64(step), *places[1:])


def _by_doubles(a: Float32 | np.float32, b: Float32, c: Float32) -> NDArray[Any]:
    """Return the same by float64, which holds each product: the sum is rounded to odd there, so that once counts.

    See Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd".
    """
    product, added = np.multiply(a, b, dtype=np.float64), c.astype(np.float64)
    total = product + added
    other = total - product
    error = (product - (total - other)) + (added - other)  # of the sum (Knuth), exact where all is finite
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(error) & (bits & 1 == 0)
    # The neighbour that is odd lies on the error's side: away from zero where total and error have one sign.
    bits += np.where(inexact, np.where((total > 0) == (error > 0), 1, -1), 0)
    return total.astype(np.float32)
