"""How much of a cluster may run for the sake of learning: pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.live.exploration.budget import SAVED_SLOTS, ExplorationBudget


def test_a_part_of_each_slot_comes_in_and_is_saved():
    budget = ExplorationBudget().at_slot(0, 30.0, 0.02).at_slot(1, 30.0, 0.02)
    assert (budget.lived, budget.saved, budget.spent) == (60.0, pytest.approx(1.2), 0.0)
    paid = budget.paid(0.9, 2)
    assert (paid.spent, paid.saved, paid.jobs, paid.part_spent) == (0.9, pytest.approx(0.3), 2, pytest.approx(0.015))
    assert paid.paid(-0.9, -2) == budget


def test_a_slot_that_is_decided_once_more_brings_in_nothing():
    budget = ExplorationBudget().at_slot(7, 30.0, 0.02)
    assert budget.at_slot(7, 30.0, 0.02) == budget.at_slot(6, 30.0, 0.02) == budget


def test_what_is_saved_is_bounded():
    budget = ExplorationBudget()
    for slot in range(1000):
        budget = budget.at_slot(slot, 30.0, 0.02)
    assert budget.saved == pytest.approx(0.02 * 30 * SAVED_SLOTS)


@given(st.lists(st.floats(0.0, 50.0), max_size=60), st.floats(0.001, 0.5))
def test_no_more_is_spent_than_has_come_in(wishes, part):
    budget = ExplorationBudget()
    for slot, wish in enumerate(wishes):
        budget = budget.at_slot(slot, 30.0, part)
        if wish <= budget.saved:
            budget = budget.paid(wish, 1)
        assert budget.spent <= part * budget.lived * (1 + 1e-9)
