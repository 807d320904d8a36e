"""This benchmark says how far placement rules lie over a planner that knows true speeds: a learner's headroom.

    python -m benchmarks.placement [--sequences N] [--loads 1 2 3]

Six servers of Harmony's testbed, 60 jobs a sequence, in the mechanistic world. Times are intervals from a job's arrival
to its end, in the mean; docs/reference/placement.md says what the rules are and what the goals follow from. Goals are
those of a learnt policy, from two jobs an interval on: the best planner with fitted speeds says if they can be had.
Behind them stand the goals of all placement benchmarks that have been run here, as build/bench has them, so that
one file says what is met and what is missed; it names those that have not been run.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_least, finish
from dl2_scheduler.figures.placement.contenders import (
    FITTED,
    TRUE,
    PlacementComparison,
    compare_placements,
    contenders,
    planner_names,
)
from dl2_scheduler.learning.placement.reward_model import fit_world
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.placed.scenario import Scenario

SAMPLES = 13_177  # that planners' models are fitted to, with noise, as many as Harmony's authors had
FIRST = 1000  # seed of the sequences that goals are judged on; learners never see them

ELSEWHERE = ("placement_reward", "placement_measured", "chic", "placement_harmony", "placement_graph", "placement_live")
"""Benchmarks that learn, or run real jobs: each takes minutes or hours of its own."""

RULES = {"load balancing": 32.0, "best fit": 40.0, "LIF-linear, lb": 25.0, "LIF-quadratic, lb": 25.0}
RULES |= {"LIF-linear, own": 20.0, "LIF-quadratic, own": 20.0, "tetris-dot": 28.0}
"""By how many percent a learnt policy is to lie under each, in its better order, at uniform arrivals."""
_GOALS_FROM = 2.0  # jobs an interval: at fewer a rule comes so near to the bound that nobody has so much room


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=10)
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 2.0, 3.0], help="jobs an interval")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    fitted = fit_world(Scenario.harmony(arguments.loads[0]), SAMPLES)  # the same at every load
    for load in arguments.loads:
        scenario = Scenario.harmony(load)
        seeds = range(FIRST, FIRST + arguments.sequences)
        print(f"{load:g} jobs an interval")
        policies = contenders(scenario, fitted)
        found = compare_placements(scenario, policies, seeds, print)
        rows += _rows(load, found)
        goals += _goals(load, found) if load >= _GOALS_FROM else []
    return finish("placement", [*rows, *_not_run()], [*goals, *_goals_elsewhere()], ["numpy", "numba", "scipy"])


def _not_run() -> list[dict[str, Any]]:
    return [{"not run here": f"make bench-{name}"} for name in ELSEWHERE if not (FOLDER / f"{name}.json").exists()]


def _goals_elsewhere() -> Iterator[BenchmarkGoal]:
    """Yield the goals of the other placement benchmarks, as they were last measured here."""
    for path in (FOLDER / f"{name}.json" for name in ELSEWHERE):
        for goal in json.loads(path.read_text())["goals"] if path.exists() else ():
            yield BenchmarkGoal(**{**goal, "name": f"{path.stem}: {goal['name']}"})


def _goals(load: float, found: PlacementComparison) -> list[BenchmarkGoal]:
    """Return whether a learnt policy's goals can be had: a planner that knows what learners know reaches them."""
    planner = min(planner_names(FITTED), key=found.mean)
    return [
        at_least(
            f"{load:g} jobs an interval: {planner} under {rule}",
            percent,
            found.under(planner, found.best(rule)).mean,
            "%",
        )
        for rule, percent in RULES.items()
    ]


def _rows(load: float, found: PlacementComparison) -> Sequence[dict[str, Any]]:
    best = min(planner_names(TRUE), key=lambda name: float(found.means[name].mean()))
    rows = []
    for name, means in found.means.items():
        intervals, gain = estimate(means.tolist()), found.under(best, name)
        rows.append(
            {
                "jobs an interval": load,
                "policy": name,
                "intervals": round(intervals.mean, 3),
                "best planner under it %": round(gain.mean, 1),
                "+-": None if gain.margin is None else round(gain.margin, 1),
            }
        )
    for name, bound in zip(("bound: each job alone", "bound: linear program"), found.bounds.T, strict=True):
        rows.append({"jobs an interval": load, "policy": name, "intervals": round(float(bound.mean()), 3)})
    return rows


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    as_program(main)
