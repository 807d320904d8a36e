"""This module calls the compiled loops (`kernels.c`) by ctypes: other threads go on meanwhile."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.native.threads import in_parallel

Array = NDArray[Any]

_UNIT = 1 << 20
"""How many elements are worth a thread's while: a chunk that has come by TCP is not, other cores receive the next."""

_STATES = 2


class _Update(ctypes.Structure):
    """An `_Update` is what a compiled rule is given, see `kernels.inc`."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("old", ctypes.c_void_p),
        ("new", ctypes.c_void_p),
        ("gradients", ctypes.c_void_p),
        ("contributions", ctypes.c_int64),
        ("each", ctypes.c_void_p),
        ("factor", ctypes.c_void_p),
        ("kept", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Sum:
    """A `Sum` is contributions that are added on the way. Their memory is never written to.

    Attributes:
        arrays: the contributions, flat and of one dtype, in the order in which they are added.
        each: factor of each before the sum; None: all 1.
        factor: of the sum.
        kept: memory in which the sum is put as well, when it has been asked for; None: nowhere.
    """

    arrays: Sequence[Array]
    each: Sequence[float] | None = None
    factor: float = 1.0
    kept: Array | None = None


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library; None where there was no compiler when this package was installed."""
    files = [Path(__file__).with_name(f"_kernels{suffix}") for suffix in EXTENSION_SUFFIXES]
    return next((ctypes.CDLL(str(file)) for file in files if file.exists()), None)


@cache
def _compiled(rule: str, dtype: np.dtype[Any]) -> Any:
    """Return a compiled rule for values of a dtype; None: there is none."""
    return getattr(library(), f"{rule}_{dtype.name}", None)


def has(rule: str, dtype: np.dtype[Any]) -> bool:
    """Return whether there is a compiled rule of this name for values of this dtype."""
    return _compiled(rule, dtype) is not None


def address(array: Array) -> int:
    """Return the address of an array's memory."""
    return int(array.__array_interface__["data"][0])


def update(rule: str, old: Array, new: Array, gradient: Sum, states: Sequence[Array], constants: Sequence[Any]) -> None:
    """Run a compiled rule over flat arrays of one dtype, which is float32 or float64.

    Args:
        rule: its name in `kernels.inc`, where its constants are listed, too.
        old: values before the update.
        new: values after it: the same memory, or other.
        gradient: of the values' dtype.
        states: updated in place.
        constants: of the rule.
    """
    dtype, kept = old.dtype, gradient.kept
    function = _compiled(rule, dtype)
    numbers = np.array(constants, dtype)
    weights = np.array(gradient.each, dtype) if gradient.each is not None else None
    scale = np.array([gradient.factor], dtype) if gradient.factor != 1.0 else None
    places = [address(array) for array in (old, new, *states, *gradient.arrays)]

    def work(low: int, high: int) -> None:
        first, second, *others = [place + low * dtype.itemsize for place in places]
        of_states = (ctypes.c_void_p * _STATES)(*others[: len(states)])
        of_gradients = (ctypes.c_void_p * len(gradient.arrays))(*others[len(states) :])
        task = _Update(
            high - low,
            first,
            second,
            ctypes.addressof(of_gradients),
            len(gradient.arrays),
            address(weights) if weights is not None else None,
            address(scale) if scale is not None else None,
            address(kept) + low * dtype.itemsize if kept is not None else None,
            ctypes.addressof(of_states),
            address(numbers),
        )
        function(ctypes.byref(task))

    in_parallel(len(old), _UNIT, work)
