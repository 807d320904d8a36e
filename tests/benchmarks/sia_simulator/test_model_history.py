"""What jobs of a model have shown tells what the next one is like."""

import numpy as np
import pytest

from benchmarks.sia_simulator.model_history import ModelHistory, noise_of
from tests.benchmarks.sia_simulator.stand_ins import Speedup

COUNTS = np.array([[1.0, 1.0, 2.0], [1.0, 4.0, 8.0]])


def test_what_is_left_is_told_by_jobs_that_ended():
    history = ModelHistory()
    assert history.remaining(done=0.0, single=2.0) == 3600  # half an hour on one GPU
    assert history.remaining(done=9000.0, single=2.0) == 9000
    history.totals = [1000.0, 3000.0]
    assert history.remaining(500.0, 2.0) == 1500
    assert history.remaining(1000.0, 2.0) == 2000  # only the longer one counts
    assert history.remaining(5000.0, 2.0) == pytest.approx(0.08 * 2000)


def test_restarts_are_learnt():
    history = ModelHistory()
    assert history.restart(30.0) == 30
    for seconds in (0.0, 50.0, 50.0):
        history.saw_restart(seconds)
    assert history.restart(30.0) == pytest.approx(130 / 3)


def test_the_fit_is_kept_of_the_job_that_ran_on_most_gpus():
    history, wide, narrow, later = ModelHistory(), Speedup(4.0), Speedup(1.0), Speedup(5.0)
    for depth, speedup in ((4, wide), (1, narrow)):
        history.saw_fit("fast", depth, speedup)
    assert history.fits["fast"] is wide
    history.saw_fit("fast", 4, later)
    assert history.fits["fast"] is later


def test_the_noise_of_the_job_that_was_seen_most_often_is_kept():
    history = ModelHistory()
    history.saw_end(100.0, [(0.0, 1.0, 8.0)])
    assert history.noise is None  # once is not enough
    history.saw_end(200.0, [(0.0, 1.0, 8.0), (0.0, 1.0, 9.0), (100.0, 2.0, 16.0)])
    assert history.noise.parts == pytest.approx([0.0, 0.5])
    assert history.noise.variances == pytest.approx([8, 16])
    history.saw_end(400.0, [(0.0, 3.0, 8.0), (100.0, 3.0, 16.0)])
    assert history.noise.squares == pytest.approx([1, 2])
    history.saw_end(1000.0, [(10.0 * number, 1.0, number) for number in range(100)])
    assert len(history.noise.parts) == 16
    assert history.totals == [100, 200, 400, 1000]


def test_speeds_over_the_work_are_the_kept_fit_with_the_noise_of_then():
    history = ModelHistory()
    assert history.speeds("fast", COUNTS) is None
    history.saw_fit("fast", 4, Speedup(2.0, noise=(1.0, 0.0)))
    assert history.speeds("fast", COUNTS) is None  # as long as no job has ended
    history.saw_end(200.0, [(0.0, 1.0, 0.0), (100.0, 1.0, 3.0)])
    speeds = history.speeds("fast", COUNTS)
    assert speeds == pytest.approx(np.array([[2, 2, 2], 2 * np.array([1, 4 / 1.75, 8 / 2.75])]))
    assert history.speeds("fast", COUNTS) is speeds  # worked out once
    history.saw_fit("fast", 8, Speedup(4.0, noise=(1.0, 0.0)))
    assert history.speeds("fast", COUNTS) == pytest.approx(2 * speeds)
    assert noise_of(history.fits["fast"]) == (1.0, 0.0)  # is left as it was
