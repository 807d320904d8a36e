"""This module decides by the norm of all gradients of an exchange what servers multiply them by before applying them.

Each block's sum of squares is a number of its own, and their exact sum is rounded once: the norm is the same however
blocks are divided among servers.
"""

from collections.abc import Iterable
from math import fsum, isfinite, sqrt

from elastic_ps.core.optimizer import Hyper

NOT_FINITE = -1.0
"""Stands for a sum of squares that is infinite or no number: frames bring finite numbers only."""

SKIPPED = 0.0
"""This factor says that an exchange is skipped."""

_SMALL = 1e-6  # as in torch.nn.utils.clip_grad_norm_


class DecidedFactor:
    """A `DecidedFactor` is the latest factor that a node has heard of, and whose gradients had it."""

    def __init__(self) -> None:
        self._version = -1
        self._factor: float | None = None

    def note(self, version: int, factor: float) -> None:
        """Take note that the gradients of a version have a factor; an earlier version is not looked back at."""
        if version >= self._version:
            self._version, self._factor = version, factor

    def of(self, version: int) -> float | None:
        """Return the factor of the gradients of a version; None: none is known."""
        return self._factor if version == self._version else None


def told_total(squares: float) -> float:
    """Return a sum of squares as it is told: `NOT_FINITE` where it is infinite or no number."""
    return squares if isfinite(squares) else NOT_FINITE


def told_squares(norms: Iterable[float]) -> float:
    """Return the sum of squares of parts that have these norms, or `NOT_FINITE`: also where a square is too large."""
    return told_total(sum(norm * norm for norm in norms))


def factor_of(squares: Iterable[float], hyper: Hyper) -> float:
    """Return the factor on all gradients of an exchange.

    Args:
        squares: the sum of squares of each block's aggregated gradient, or `NOT_FINITE`.
        hyper: the optimizer's values, which say what the norm is for.

    Returns:
        `SKIPPED`, or from above 0 to 1. Gradients that are not finite, and are not to be skipped, have the factor 1:
        they make the parameters no numbers, as they would have in one process.
    """
    found = list(squares)
    try:
        total = NOT_FINITE if NOT_FINITE in found else fsum(found)
    except OverflowError:  # each of them is finite
        total = NOT_FINITE
    if total == NOT_FINITE:
        return SKIPPED if hyper.skip_overflow else 1.0
    return 1.0 if hyper.max_norm is None else min(1.0, hyper.max_norm / (sqrt(total) + _SMALL))
