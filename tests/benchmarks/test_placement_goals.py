"""The goals of `bench-placement`: of every rule in its better order, by the better planner with fitted speeds."""

import json

import numpy as np
import pytest

from benchmarks import placement
from benchmarks.placement import RULES, _goals
from dl2_scheduler.figures.placement.contenders import FITTED, SHORTEST, PlacementComparison, planner_names, rules
from dl2_scheduler.sim.placed.scenario import Scenario


def test_goals_are_of_rules_that_are_run_in_their_better_order():
    assert set(RULES) <= set(rules(Scenario.harmony(2.0)))
    means = {rule: np.array([10.0, 10.0]) for rule in RULES} | {rule + SHORTEST: np.array([5.0, 5.0]) for rule in RULES}
    means |= {name: np.array([size, size]) for size, name in enumerate(planner_names(FITTED), start=3)}
    goals = {goal.name: goal for goal in _goals(2.0, PlacementComparison(means, np.zeros((2, 2))))}
    assert len(goals) == len(RULES)
    goal = goals[f"2 jobs an interval: {planner_names(FITTED)[0]} under best fit"]
    assert (goal.value, goal.met) == (pytest.approx(40.0), True)
    assert all(goal.met for goal in goals.values())


def test_goals_that_other_benchmarks_have_measured_stand_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(placement, "FOLDER", tmp_path)
    goals = [{"name": "under Optimus", "goal": "at least 12.65 %", "value": 13.1, "met": True}]
    (tmp_path / "chic.json").write_text(json.dumps({"goals": goals}))
    (goal,) = placement._goals_elsewhere()
    assert (goal.name, goal.value, goal.met) == ("chic: under Optimus", 13.1, True)
    assert {"not run here": "make bench-placement_graph"} in placement._not_run()
    assert len(placement._not_run()) == len(placement.ELSEWHERE) - 1
