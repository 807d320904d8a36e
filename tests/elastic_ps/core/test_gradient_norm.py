"""The factor that the norm of all gradients decides."""

import random

import pytest

from elastic_ps.core.gradient_norm import NOT_FINITE, SKIPPED, DecidedFactor, factor_of, told_squares
from elastic_ps.core.optimizer import Hyper


@pytest.mark.parametrize(
    ("squares", "hyper", "factor"),
    [
        ([9.0, 16.0], Hyper(max_norm=1.0), 1 / (5 + 1e-6)),
        ([9.0, 16.0], Hyper(max_norm=6.0), 1.0),
        ([0.0], Hyper(max_norm=1.0), 1.0),
        ([9.0, 16.0], Hyper(skip_overflow=True), 1.0),
        ([9.0, NOT_FINITE], Hyper(max_norm=1.0, skip_overflow=True), SKIPPED),
        ([9.0, NOT_FINITE], Hyper(max_norm=1.0), 1.0),
        ([1e308, 1e308], Hyper(max_norm=1.0, skip_overflow=True), SKIPPED),  # a sum that is not finite
        ([1e308, 1e308], Hyper(max_norm=1.0), 1.0),
    ],
)
def test_factors(squares: list[float], hyper: Hyper, factor: float) -> None:
    assert hyper.needs_norm
    assert factor_of(squares, hyper) == factor


def test_the_order_of_blocks_does_not_matter() -> None:
    draw = random.Random(1)
    squares = [10 ** draw.uniform(-30, 10) for _ in range(1000)]
    expected = factor_of(squares, Hyper(max_norm=1.0))
    for _ in range(5):
        draw.shuffle(squares)
        assert factor_of(squares, Hyper(max_norm=1.0)) == expected


def test_squares_of_norms_that_are_too_large_for_any_number_are_told_as_such() -> None:
    assert told_squares([3.0, 4.0]) == 25.0
    assert told_squares([]) == 0.0
    for norms in ([1e200], [1e154, 1e154], [float("inf")], [float("nan"), 1.0]):
        assert told_squares(norms) == NOT_FINITE


def test_what_is_decided_needs_no_norm() -> None:
    assert not Hyper(max_norm=1.0, factor=0.5).needs_norm
    assert not Hyper().needs_norm


def test_the_latest_factor_is_known() -> None:
    decided = DecidedFactor()
    assert decided.of(3) is None
    decided.note(3, 0.5)
    decided.note(2, 0.1)
    assert (decided.of(3), decided.of(2)) == (0.5, None)
    decided.note(4, 1.0)
    assert (decided.of(3), decided.of(4)) == (None, 1.0)
