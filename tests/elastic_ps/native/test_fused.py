"""A product and a sum in one rounding: compiled and by numpy."""

from fractions import Fraction

import numpy as np
import pytest

from elastic_ps.native import fused

TINY = np.float32(2.0**-12)
ODD = np.float32(1 + 2.0**-23)
EVEN = np.float32(1 + 2.0**-22)
UP, DOWN = np.float32(1 + 2.0**-23), np.float32(1 - 2.0**-23)
JUST_BELOW_HALF = (TINY * UP, TINY * DOWN)
"""Their product is 2^-24 - 2^-70: half of the last place of 1, but for what a double loses."""


def nearest(exact: Fraction) -> np.float32:
    """The float32 nearest to a number, the even one of two."""
    around = np.float32(float(exact))
    found = [around, np.nextafter(around, np.float32(np.inf)), np.nextafter(around, np.float32(-np.inf))]
    return min(found, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1))


def cases() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    a, b, c = (random.standard_normal(300).astype(np.float32) for _ in range(3))
    c[:100] = -(a[:100] * b[:100])  # nearly all is cancelled
    small, smaller = JUST_BELOW_HALF
    hard = [(small, smaller, ODD), (-small, smaller, -ODD), (small, smaller, EVEN), (-small, smaller, EVEN)]
    hard += [(np.float32(1e-30), np.float32(1e-14), np.float32(0)), (np.float32(0), np.float32(3), np.float32(-2))]
    return tuple(np.append(known, [case[at] for case in hard]).astype(np.float32) for at, known in enumerate((a, b, c)))


@pytest.fixture(params=["compiled", "numpy"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(fused, "library", lambda: None)


@pytest.mark.usefixtures("_way")
def test_it_rounds_once() -> None:
    a, b, c = cases()
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    out = np.empty_like(a)
    fused.multiply_add(a, b, c, out)
    assert out.tolist() == [nearest(one) for one in exact]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("into", ["b", "c"])
def test_one_number_and_in_place(into: str) -> None:
    a, b, c = cases()
    out = np.empty_like(a)
    fused.multiply_add(np.full_like(a, 0.3), b, c, out)
    fused.multiply_add(np.float32(0.3), b, c, {"b": b, "c": c}[into])
    assert {"b": b, "c": c}[into].tobytes() == out.tobytes()


@pytest.mark.usefixtures("_way")
def test_what_is_not_finite() -> None:
    a = np.array([np.inf, np.nan, 3e38, 1, 0], np.float32)
    c = np.array([1, 1, 1, -np.inf, np.nan], np.float32)
    out = np.empty_like(a)
    with np.errstate(all="ignore"):
        fused.multiply_add(np.float32(2), a, c, out)
    np.testing.assert_array_equal(out, np.array([np.inf, np.nan, np.inf, -np.inf, np.nan], np.float32))
