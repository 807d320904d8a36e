"""Records are changed as `dataclasses.replace` changes them."""

import sys
from dataclasses import replace

import pytest

from coordinator.core.job import StopOrder
from coordinator.core.plans.plan import Plan, PlanKind
from coordinator.core.records import changed, remembered


def test_a_record_is_changed_as_replace_does():
    plan = Plan(1, PlanKind.START, "test", 0.0)
    assert plan.receivers == frozenset()  # which is kept, and is no field
    other = changed(plan, cause="other", clock=3)
    assert other == replace(plan, cause="other", clock=3)
    assert vars(other) == vars(replace(plan, cause="other", clock=3))
    assert plan.cause == "test"


def test_a_field_that_is_not_there_is_refused():
    with pytest.raises(TypeError, match="StopOrder has no fields why"):
        changed(StopOrder("over"), why="over")


def test_what_is_remembered_of_some_records_is_not_told_of_others():
    """Another thread may ask at any moment: here one does so before each line of the answer to the first."""
    first, second = StopOrder("first"), StopOrder("second")

    @remembered
    def reason(order):
        return order.reason

    def before_each_line(frame, event, argument):
        assert reason(second) == "second"
        return before_each_line

    before = sys.gettrace()
    sys.settrace(before_each_line)
    try:
        told = reason(first)
    finally:
        sys.settrace(before)
    assert told == "first"
