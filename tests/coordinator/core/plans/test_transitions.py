"""The table of a plan's phases."""

import pytest

from coordinator.core.plans.plan import Phase, Plan, PlanKind
from coordinator.core.plans.transitions import TRANSITIONS, ImpossibleTransitionError, Trigger, advance


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("trigger", Trigger)
def test_a_pair_is_in_the_table_or_raises_with_the_history(phase, trigger):
    plan = advance(Plan(7, PlanKind.SCALE, "operator", 1.0), Trigger.COMPLETE, 2.0)
    plan = Plan(**{**plan.__dict__, "phase": phase})
    rows = [row for row in TRANSITIONS if (row.source, row.trigger) == (phase, trigger)]
    if rows:
        assert advance(plan, trigger, 3.0).phase is rows[0].target
        assert len(rows) == 1
    else:
        with pytest.raises(ImpossibleTransitionError, match=r"plan 7 .*complete -> ASSIGNED at 2\.000"):
            advance(plan, trigger, 3.0)


def test_only_an_armed_plan_is_dropped():
    assert [(row.source, row.target) for row in TRANSITIONS if row.trigger is Trigger.DROP] == [
        (Phase.ARMED, Phase.DROPPED)
    ]


def test_an_armed_plan_has_no_way_to_be_cancelled():
    assert not [row for row in TRANSITIONS if row.source is Phase.ARMED and row.target is Phase.CANCELLED]
