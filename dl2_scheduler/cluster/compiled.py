"""Numba, with types."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of numbers and arrays at its first call; it does not hold the interpreter's lock."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """The same for a small one, which becomes part of its compiled callers: arrays need not be handed over."""
    return cast(F, numba.njit(cache=True, nogil=True, forceinline=True)(function))
