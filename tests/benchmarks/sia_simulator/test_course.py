"""A course of work turns speeds that change on the way into seconds and into mean speeds."""

import numpy as np
import pytest

from benchmarks.sia_simulator.course import WorkCourse

COURSE = WorkCourse(100.0, np.array([0.0, 50.0]), np.array([[1.0, 1.0], [1.0, 5.0]]))
NO_DELAY = np.zeros(2)


def test_seconds_left_are_those_of_each_part():
    assert COURSE.seconds_left(0.0) == pytest.approx([100, 60])
    assert COURSE.seconds_left(75.0) == pytest.approx([25, 5])
    assert COURSE.seconds_left(100.0) == pytest.approx([0, 0])


def test_mean_speeds_look_ahead_to_the_horizon():
    assert COURSE.mean_speeds(0.0, NO_DELAY, 40.0) == pytest.approx([1, 1])
    assert COURSE.mean_speeds(0.0, NO_DELAY, 55.0) == pytest.approx([1, 75 / 55])
    assert COURSE.mean_speeds(50.0, NO_DELAY, 5.0) == pytest.approx([1, 5])


def test_a_restart_does_no_work_and_one_beyond_the_horizon_none_at_all():
    assert COURSE.mean_speeds(50.0, np.array([0.0, 10.0]), 15.0) == pytest.approx([1, 25 / 15])
    assert COURSE.mean_speeds(50.0, np.array([20.0, 30.0]), 15.0) == pytest.approx([0, 0])


def test_a_job_that_ends_before_the_horizon_is_as_fast_as_it_ends():
    assert COURSE.mean_speeds(50.0, np.array([0.0, 10.0]), 1000.0) == pytest.approx([50 / 50, 50 / 20])


def test_a_speed_of_zero_takes_for_ever():
    stuck = WorkCourse(100.0, np.zeros(1), np.array([[0.0, 1.0]]))
    assert stuck.seconds_left(0.0)[0] > 1e9
    assert stuck.mean_speeds(0.0, NO_DELAY, 60.0) == pytest.approx([0, 1], abs=1e-6)
