"""tests/allreduce_model: jobs without servers hold in small scopes, and are refuted without any of their rules."""

import pytest

pytest.importorskip("torch")

from tests.allreduce_model.job import RULES, Scope
from tests.allreduce_model.model import explore
from tests.allreduce_model.scopes import NEEDED, SCOPES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SCOPES)
def test_it_holds(name):
    outcome = explore(SCOPES[name])
    assert not outcome.broken, outcome.trace


@pytest.mark.parametrize("rule", NEEDED)
def test_it_is_refuted_without_a_rule(rule):
    assert explore(NEEDED[rule]).broken


def test_two_rules_save_time_and_nothing_here_rests_on_them():
    """A missed clock is mended by the others' switch; a plan that a death has not cancelled comes to nothing."""
    saving = frozenset({"late_is_armed_again", "one_plan"})
    assert RULES.keys() - NEEDED.keys() == saving
    assert not explore(Scope(joins=True, crashes=0, without=saving)).broken
    assert not explore(Scope(joins=True, steps=1, without=saving)).broken
