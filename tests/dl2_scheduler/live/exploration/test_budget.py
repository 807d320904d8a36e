"""How much of a cluster may run for the sake of learning: pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.live.exploration.budget import SAVED_SLOTS, ExplorationBudget


def lived(*lengths, budget=None, part=0.02, seconds=30.0):
    """The budget as a slot begins after others that took so long."""
    now, budget = 1e9, budget or ExplorationBudget()
    for slot, length in enumerate([*lengths, 0.0], budget.slot + 1):
        budget = budget.at_slot(slot, seconds, part, now)
        now += length
    return budget


def test_a_part_of_each_slot_comes_in_when_it_is_over_and_is_saved():
    budget = lived(30.0, 30.0)
    assert (budget.lived, budget.saved, budget.spent) == (60.0, pytest.approx(1.2), 0.0)
    paid = budget.paid(0.9, 2)
    assert (paid.spent, paid.saved, paid.jobs, paid.part_spent) == (0.9, pytest.approx(0.3), 2, pytest.approx(0.015))
    assert paid.paid(-0.9, -2) == budget


def test_a_slot_that_ends_early_brings_in_as_much_less():
    budget = lived(60.0, seconds=1200.0)
    assert (budget.lived, budget.saved) == (60.0, pytest.approx(1.2))
    assert budget.ended(0.02, 1e9 + 60.0 + 90.0).lived == 150.0


@pytest.mark.parametrize(("took", "counts"), [(1e6, 30.0), (-1e6, 0.0), (29.0, 29.0)])
def test_a_jump_of_the_clock_brings_in_no_more_than_the_slots_length(took, counts):
    assert lived(took).lived == counts


def test_a_slot_that_is_over_brings_in_nothing_more():
    ended = lived().ended(0.02, 1e9 + 30.0)
    assert ended == ended.ended(0.02, 1e9 + 60.0)
    assert ended.at_slot(7, 30.0, 0.02, 1e9 + 90.0).lived == ended.lived == 30.0


def test_a_slot_that_is_decided_once_more_brings_in_nothing():
    budget = ExplorationBudget().at_slot(7, 30.0, 0.02, 1e9)
    assert budget.at_slot(7, 30.0, 0.02, 1e9 + 9.0) == budget


def test_slots_whose_numbers_have_begun_again_bring_in_what_others_do():
    """Who deletes a cluster's databases alone had nothing explored for thousands of slots."""
    budget = ExplorationBudget().at_slot(7000, 30.0, 0.02, 1e9).paid(0.1, 1)
    for slot in range(3):
        budget = budget.at_slot(slot, 30.0, 0.02, 1e9 + 30.0 * (slot + 1))
    assert (budget.lived, budget.spent, budget.jobs) == (90.0, 0.1, 1)


def test_what_is_saved_is_bounded():
    assert lived(*[30.0] * 1000).saved == pytest.approx(0.02 * 30 * SAVED_SLOTS)


@given(st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(-10.0, 90.0)), max_size=60), st.floats(0.001, 0.5))
def test_no_more_is_spent_than_has_come_in(slots, part):
    budget, now = ExplorationBudget(), 1e9
    for slot, (wish, took) in enumerate(slots):
        budget = budget.at_slot(slot, 30.0, part, now)
        now += took
        if wish <= budget.saved:
            budget = budget.paid(wish, 1)
        assert budget.spent <= part * budget.lived * (1 + 1e-9)
