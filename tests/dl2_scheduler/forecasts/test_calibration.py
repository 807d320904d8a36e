"""Forecasts are corrected by how earlier ones did."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest

from dl2_scheduler.forecasts.calibration import HIGH, LOW, MIDDLE, Calibration, RawForecast

SLOT = 60.0


def test_the_ensembles_median_and_spread():
    raw = RawForecast.of([60.0, 180.0, 420.0], 1e4, SLOT)
    assert raw.seconds == pytest.approx(180.0)
    assert raw.deviation == pytest.approx(math.hypot(math.log(2) * math.sqrt(2 / 3), 0.1 * math.sqrt(16 / 3 - 1)))


def test_what_does_not_come_about_in_half_of_the_futures_has_no_forecast():
    assert RawForecast.of([60.0, math.inf], 1e4, SLOT) is None
    assert RawForecast.of([], 1e4, SLOT) is None
    some = RawForecast.of([60.0, 60.0, math.inf], 1e4, SLOT)
    assert some.seconds == pytest.approx(60.0)
    assert some.deviation > 1.0


def test_a_few_futures_that_agree_are_not_sure():
    """On a busy machine there is time for one or two of sixteen, which agree by chance, or with themselves."""
    one, two, four, all_of_them = (RawForecast.of([60.0] * count, 1e4, SLOT).scale for count in (1, 2, 4, 16))
    assert (one, four, all_of_them) == pytest.approx((0.4, 0.2, 0.1))
    assert one > two > four
    assert RawForecast.of([60.0] * 10_000, 1e4, SLOT).scale == all_of_them


def test_a_score_leads_back_to_its_seconds():
    raw = RawForecast(500.0, 0.3, SLOT)
    for seconds in (0.0, 30.0, 500.0, 5000.0):
        assert raw.with_score(raw.score(seconds)) == pytest.approx(seconds)
    assert raw.score(500.0) == 0.0
    assert raw.with_score(-1e3) == 0.0, "nothing comes about in the past"


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_intervals_hold_as_often_as_they_say_however_wrong_the_futures_are(factor):
    """The futures are off by a factor, and three times too sure of themselves."""
    random = np.random.default_rng(5)
    calibration, held = Calibration(), []
    for number in range(2500):
        raw = RawForecast(float(random.uniform(300.0, 9000.0)), 0.2, SLOT)
        actual = (raw.seconds + SLOT) * factor * math.exp(random.normal(0.0, 0.6)) - SLOT
        if number >= 500:
            low, middle, high = calibration.seconds(raw, (LOW, MIDDLE, HIGH))
            held.append((actual <= low, actual <= middle, actual <= high))
        calibration.observe(raw, raw.score(actual))
    assert np.mean(held, axis=0) == pytest.approx((LOW, MIDDLE, HIGH), abs=0.03)


def test_before_any_forecast_has_come_true_the_ensemble_is_believed_half():
    raw = RawForecast(600.0, 0.2, SLOT)
    expected = Calibration().expected(raw, 1e9)
    assert expected.at == pytest.approx(1e9 + 600.0)
    assert expected.low == pytest.approx(1e9 + 660.0 * math.exp(-2.56 * raw.scale) - SLOT, abs=30.0)
    assert expected.high == pytest.approx(1e9 + 660.0 * math.exp(2.56 * raw.scale) - SLOT, abs=60.0)


def test_after_forecasts_that_were_sure_and_far_off_there_are_dates_still():
    """One that is not sure is wrong by as many of its own deviations, which are large."""
    sure = RawForecast(20.0, 0.0, 20.0)
    calibration = Calibration([(sure, sure.score(1e9))] * 30)
    found = calibration.expected(RawForecast(40.0, 6.0, 20.0), 1.7e9)
    assert found.low <= found.at <= found.high
    assert datetime.fromtimestamp(found.high, UTC).year < 2200


def test_near_and_far_forecasts_are_corrected_each_by_their_like():
    calibration = Calibration()
    near, far = RawForecast(60.0, 0.2, SLOT), RawForecast(60_000.0, 0.2, SLOT)
    for _ in range(600):
        calibration.observe(near, 1.0)
        calibration.observe(far, -2.0)
    for raw, score in ((near, 1.0), (far, -2.0)):
        assert calibration.seconds(raw, (MIDDLE,)) == [pytest.approx(raw.with_score(score))]
