"""Time that events divide: exact ends, what is carried over, and the limit of fine slots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.sim.events.progress import Progress


def test_a_job_ends_at_the_second_its_work_is_done_and_others_carry_their_fraction_on():
    progress = Progress(np.array([0.0, 0.0, 50.0]), np.array([10.0, 30.0, 5.0]))
    rates = np.array([0.4, 0.7, 9.0])
    assert progress.next_arrival() == 50
    assert progress.next_finish(rates) == 25
    assert progress.advance(25, rates).tolist() == [0]
    assert progress.left.tolist() == pytest.approx([0, 12.5, 5])
    assert progress.next_finish(np.array([9.0, 0.5, 9.0])) == 50
    assert progress.advance(50, np.array([9.0, 0.5, 9.0])).tolist() == [1]
    assert progress.finish.tolist()[:2] == [25, 50]
    assert progress.present.tolist() == [False, False, True]
    assert not progress.over
    assert progress.advance(51, np.array([0.0, 0.0, 5.0])).tolist() == [2]
    assert progress.over
    assert progress.next_finish(rates) == progress.next_arrival() == np.inf


def test_a_job_that_ends_inside_the_time_that_passes_has_its_own_second():
    progress = Progress(np.array([0.0, 0.0]), np.array([10.0, 30.0]))
    assert progress.advance(20, np.array([1.0, 2.0])).tolist() == [0, 1]
    assert progress.finish.tolist() == [10, 15]


def test_a_job_without_a_rate_goes_nowhere():
    progress = Progress(np.array([0.0]), np.array([10.0]))
    assert progress.next_finish(np.array([0.0])) == np.inf
    assert not len(progress.advance(1e9, np.array([0.0])))
    assert progress.left.tolist() == [10.0]


@given(st.data())
def test_any_division_of_time_gives_the_same_ends_while_rates_stay(data: st.DataObject):
    count = data.draw(st.integers(1, 5))
    each = st.lists(st.floats(0.1, 100), min_size=count, max_size=count)
    work, rates = np.array(data.draw(each)), np.array(data.draw(each))
    whole, parts = Progress(np.zeros(count), work), Progress(np.zeros(count), work)
    whole.advance(2000.0, rates)
    for to in sorted(data.draw(st.lists(st.floats(0.01, 1999), max_size=20))):
        parts.advance(to, rates)
    parts.advance(2000.0, rates)
    assert parts.finish == pytest.approx(whole.finish)
