"""Forecasts are corrected by how earlier ones did."""

import math
from datetime import UTC, datetime
from statistics import NormalDist

import numpy as np
import pytest

from dl2_scheduler.forecasts.calibration import HIGH, LOW, MIDDLE, Calibration, RawForecast

SLOT = 60.0
RAW = RawForecast(600.0, 0.2, SLOT)
INTERVAL = LOW, HIGH


def of_jobs(scores, each=1, raw=RAW):
    """Jobs of which each has as many forecasts, all off by the same."""
    return [[(raw, float(score))] * each for score in scores]


def scores_of(calibration, levels=INTERVAL):
    return [RAW.score(seconds) for seconds in calibration.seconds(RAW, levels)]


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
        calibration.observe([(raw, raw.score(actual))])
    assert np.mean(held, axis=0) == pytest.approx((LOW, MIDDLE, HIGH), abs=0.03)


@pytest.mark.parametrize("jobs", [10, 20])
def test_intervals_hold_for_other_jobs_where_each_has_many_scores_that_are_the_same(jobs):
    """All forecasts of a job that waits are off by as much as one; as if they were 300 jobs, 63 and 70% held."""
    random, held = np.random.default_rng(7), []
    for _ in range(1200 // jobs):
        low, high = scores_of(Calibration(of_jobs(random.normal(0.0, 1.0, jobs), each=300 // jobs)))
        held.append(NormalDist().cdf(high) - NormalDist().cdf(low))
    assert np.mean(held) == pytest.approx(HIGH - LOW, abs=0.035)


def test_many_scores_of_one_job_are_one_that_is_known():
    long, short, guess = of_jobs([0.0], each=400), of_jobs([0.0] * 10), scores_of(Calibration())
    assert scores_of(Calibration(long)) == pytest.approx(guess, abs=0.2)
    assert scores_of(Calibration([*long, *short])) == pytest.approx(guess, abs=0.2), "nearly all of them are of one"


def test_what_was_guessed_counts_less_with_each_job_until_nine_tell():
    lows, highs = zip(*(scores_of(Calibration(of_jobs([0.0] * count, each=30))) for count in range(10)), strict=True)
    assert (lows[0], highs[0]) == pytest.approx((-2.56, 2.56), abs=0.05)
    assert list(lows) == sorted(lows)
    assert list(highs) == sorted(highs, reverse=True)
    assert highs[4] > 0.5
    assert (lows[9], highs[9]) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize("jobs", range(2, 12))
def test_what_was_guessed_narrows_nothing_that_is_known(jobs):
    """Twenty guessed scores stood beside all that were known: of nine jobs that were far off they hid the furthest."""
    low, high = scores_of(Calibration(of_jobs(np.linspace(-8.0, 8.0, jobs))))
    assert low <= -6.0
    assert high >= 6.0
    low, high = scores_of(Calibration(of_jobs(np.linspace(-4.0, 4.0, 2).repeat(jobs), each=200 // jobs)))
    assert (low, high) == pytest.approx((-4.0, 4.0))


def test_levels_follow_each_other_whatever_is_known():
    levels = [number / 10 for number in range(1, 10)]
    for count in range(20):
        found = scores_of(Calibration(of_jobs(np.linspace(1.0, 6.0, count), each=3)), levels)
        assert found == sorted(found)


def test_before_any_forecast_has_come_true_the_ensemble_is_believed_half():
    raw = RawForecast(600.0, 0.2, SLOT)
    expected = Calibration().expected(raw, 1e9)
    assert expected.at == pytest.approx(1e9 + 600.0)
    assert expected.low == pytest.approx(1e9 + 660.0 * math.exp(-2.56 * raw.scale) - SLOT, abs=30.0)
    assert expected.high == pytest.approx(1e9 + 660.0 * math.exp(2.56 * raw.scale) - SLOT, abs=60.0)


def test_after_forecasts_that_were_sure_and_far_off_there_are_dates_still():
    """One that is not sure is wrong by as many of its own deviations, which are large."""
    sure = RawForecast(20.0, 0.0, 20.0)
    calibration = Calibration([[(sure, sure.score(1e9))]] * 30)
    found = calibration.expected(RawForecast(40.0, 6.0, 20.0), 1.7e9)
    assert found.low <= found.at <= found.high
    assert datetime.fromtimestamp(found.high, UTC).year < 2200


def test_near_and_far_forecasts_are_corrected_each_by_their_like():
    calibration = Calibration()
    near, far = RawForecast(60.0, 0.2, SLOT), RawForecast(60_000.0, 0.2, SLOT)
    for _ in range(600):
        calibration.observe([(near, 1.0)])
        calibration.observe([(far, -2.0)])
    for raw, score in ((near, 1.0), (far, -2.0)):
        assert calibration.seconds(raw, (MIDDLE,)) == [pytest.approx(raw.with_score(score))]
