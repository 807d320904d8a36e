"""This benchmark learns a placement policy and compares it with rules and planners, on sequences nobody learnt from.

    python -m benchmarks.placement_harmony [--seeds 5] [--updates 300] [--loads 2 3]

Six servers of Harmony's testbed, 60 jobs a sequence, ten sequences a load, in the mechanistic world. What is learnt
sees this world only in 13,177 noisy samples of speeds, and its planner in LIF's probes: it imitates and learns in
clusters with the speeds of a model fitted to the samples. Goals are of the median seed; rules are in the order of jobs
that suits them best.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.placement import FIRST, fitted_speeds
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import (
    FITTED,
    PlacementComparison,
    compare_placements,
    contenders,
    planner_names,
)
from dl2_scheduler.learning.placement.placer_run import PlacerSettings, learn_placer
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.placed.scenario import Scenario

RULES = {"load balancing": 32.0, "best fit": 40.0, "LIF-linear, lb": 25.0, "LIF-quadratic, lb": 25.0}
RULES |= {"LIF-linear, own": 20.0, "LIF-quadratic, own": 20.0}
"""By how many percent the learnt policy is to lie under each."""
PLANNER = planner_names(FITTED)[0]
SEQUENCES = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="policies that are learnt")
    parser.add_argument("--updates", type=int, default=PlacerSettings().updates, help="from rewards")
    parser.add_argument("--loads", type=float, nargs="+", default=[2.0, 3.0], help="jobs an interval")
    arguments = parser.parse_args()
    scenarios = [Scenario.harmony(load) for load in arguments.loads]
    fitted = fitted_speeds(scenarios[0])
    seen = [replace(scenario, world=fitted) for scenario in scenarios]
    planner = contenders(scenarios[0], fitted)[PLANNER]
    learnt: dict[str, PlacementPolicy] = {}
    minutes = []
    for seed in range(arguments.seeds):
        began = time.monotonic()
        settings = PlacerSettings(updates=arguments.updates)
        learnt[f"learnt, seed {seed}"] = learn_placer(seen, planner, settings, seed, print)
        minutes.append((time.monotonic() - began) / 60)
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    for load, scenario in zip(arguments.loads, scenarios, strict=True):
        others = {name: each for name, each in contenders(scenario, fitted).items() if _compared(name)}
        found = compare_placements(scenario, others | learnt, range(FIRST, FIRST + SEQUENCES), print)
        rows += _rows(load, found, list(learnt))
        goals += _goals(load, found, list(learnt))
    goals.append(at_most("training of a policy, median", 60.0, float(np.median(minutes)), "minutes"))
    return finish("placement_harmony", rows, goals, ["numpy", "torch", "numba"])


def _compared(name: str) -> bool:
    return name in planner_names(FITTED) or any(name.startswith(rule) for rule in RULES)


def _median(found: PlacementComparison, learnt: Sequence[str]) -> str:
    """Return the name of the median policy, the worse of the two in the middle."""
    return sorted(learnt, key=lambda name: float(found.means[name].mean()))[len(learnt) // 2]


def _rows(load: float, found: PlacementComparison, learnt: Sequence[str]) -> list[dict[str, Any]]:
    middle, rows = _median(found, learnt), []
    for name, means in found.means.items():
        gain = found.under(middle, name)
        margin = None if gain.margin is None else round(gain.margin, 1)
        intervals = round(estimate(means.tolist()).mean, 3)
        rows.append(
            {
                "jobs an interval": load,
                "policy": name,
                "intervals": intervals,
                "median learnt under it %": round(gain.mean, 1),
                "+-": margin,
            }
        )
    return rows


def _goals(load: float, found: PlacementComparison, learnt: Sequence[str]) -> list[BenchmarkGoal]:
    middle = _median(found, learnt)
    goals = [
        at_least(f"load {load:g}: under {rule}", limit, found.under(middle, found.best(rule)).mean, "%")
        for rule, limit in RULES.items()
    ]
    return [*goals, at_least(f"load {load:g}: under {PLANNER}", 3.0, found.under(middle, PLANNER).mean, "%")]


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
