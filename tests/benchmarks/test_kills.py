"""What `make bench-kills` draws, and what it makes of the times that it has seen."""

from collections import Counter

import pytest

from benchmarks import kills
from benchmarks.support.killed_job import Strike, Struck, second_after


def struck(signal, at=100.0, noticed=100.5, trained=101.5):
    return Struck(Strike(signal, "rest"), "s1", "", at, noticed, 110.0, trained)


def test_all_strikes_are_drawn_over_all_kinds_of_jobs():
    drawn = kills.draws(200, 12, 1, 10.0)
    assert Counter(strike.signal for job in drawn for strike in job.strikes) == {"kill": 200, "freeze": 12}
    assert len({(job.mode, job.transport) for job in drawn}) == 6
    during = Counter(strike.during for job in drawn for strike in job.strikes)
    assert during["plan"] > 50
    assert drawn == kills.draws(200, 12, 1, 10.0)
    assert drawn != kills.draws(200, 12, 2, 10.0)


def test_few_strikes_are_one_job():
    (job,) = kills.draws(1, 0, 1, 10.0)
    assert job.strikes == (Strike("kill", "rest"),)


def test_a_pause_begins_when_it_can_be_noticed():
    assert kills.pause(struck("kill"), 10.0) == pytest.approx(1.0)
    assert kills.pause(struck("freeze", noticed=112.0, trained=116.0), 10.0) == pytest.approx(1.0)


def test_the_first_step_after_a_strike_proves_nothing():
    assert second_after([1.0, 2.0, 3.0, 4.0], 2.5) == 4.0
    assert second_after([1.0, 2.0, 3.0], 2.5) == float("inf")
