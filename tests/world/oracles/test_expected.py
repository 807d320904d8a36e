"""What the oracle takes a job's parameters to be, beside what small jobs come to by hand."""

import numpy as np
import pytest

from tests.world.faults.job_draw import BY_STEP, BY_UPDATES, DROPPED, WRAPPED, JobDraw
from tests.world.oracles.expected import Expected


def expected(**fields):
    return Expected(JobDraw(1, **{"samples": 5, "batch": 2, "given": True, **fields}))


def test_a_short_step_counts_in_full():
    course = expected().course(0)
    assert course.values.tolist()[1:] == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 2]]
    assert course.updates.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("last", "values"), [(DROPPED, [1, 1, 1, 1, 0]), (WRAPPED, [2, 1, 1, 1, 1])])
def test_the_last_samples_of_an_epoch_are_left_out_or_joined_by_its_first(last, values):
    assert expected(last=last).is_last(np.array(values, np.float32), 0)


def test_averaged_gradients_count_as_much_as_summed_ones():
    assert np.allclose(expected(mean=True).course(0).values, expected().course(0).values)


def test_a_tensor_that_is_left_out_stays_as_it_is():
    course = expected(samples=4, freezes=1, epochs=2).course(1)
    assert course.pushed.tolist() == [True, False, True, False]
    assert course.values[-1].tolist() == [2, 2, 0, 0]
    assert course.updates.tolist() == [0, 1, 1, 2, 2]


def test_a_rate_goes_by_the_step_or_by_the_updates_of_the_most_updated_tensor():
    """Two stores: the second one's only tensor is left out of every second step."""
    job = {"samples": 1, "batch": 1, "epochs": 16, "stores": 2, "freezes": 1}
    by_step, by_updates = (expected(schedule=schedule, **job) for schedule in (BY_STEP, BY_UPDATES))
    for each in (by_step, by_updates):
        assert each.course(0).values[-1] == 7 * 1 + 7 * 2 + 2 * 1
    assert by_step.course(1).values[-1] == 4 * 1 + 3 * 2 + 1 * 1
    assert by_updates.course(1).values[-1] == 7 * 1 + 1 * 2


def test_states_of_a_job_before_count():
    course = expected(samples=2, epochs=2, adaptive=True, preloads=True).course(0)
    assert course.squares.tolist() == [[2, 2], [3, 3], [4, 4]]
    assert course.updates.tolist() == [3, 4, 5]
    assert np.allclose(course.values[-1], 3**-0.5 + 0.5)


def test_a_step_whose_gradients_overflow_updates_nothing():
    course = expected(samples=4, epochs=2, overflows=frozenset([0]), norm=True).course(0)
    assert course.updates.tolist() == [0, 0, 0, 1, 2]
    assert course.values[2].tolist() == [0, 0, 0, 0]
