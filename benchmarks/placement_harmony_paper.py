"""This benchmark learns placement as Harmony's paper does, with parts of it left out (its table II and figure 10).

    python -m benchmarks.placement_harmony_paper [--updates 2000] [--seeds 1] [--variants NAME ...]

The same jobs, clusters and fitted speeds as in benchmarks.placement_harmony. What was best on selection sequences is
judged on ten other ones, in the mechanistic world, beside the planner. Each variant's result is kept in
build/bench/placement_harmony_paper, and the next call learns only what is not there with the same settings and jobs;
the figures harmony-10a, harmony-10b and harmony-table-2 read build/bench/placement_harmony_paper.json.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.placement import FIRST, SAMPLES
from benchmarks.placement_harmony import (
    LOADS,
    PLANNER,
    SELECTED_SEQUENCES,
    SEQUENCES,
    TAUGHT_SEQUENCES,
    seen_worlds,
)
from benchmarks.support.kept import settings_key
from benchmarks.support.report import FOLDER, as_program, at_most, finish
from dl2_scheduler.figures.placement.contenders import compare_placements
from dl2_scheduler.learning.placement.harmony.lessons import HarmonyChoices
from dl2_scheduler.learning.placement.harmony.network import HarmonyPlacer
from dl2_scheduler.learning.placement.harmony.run import HarmonySettings, learn_harmony
from dl2_scheduler.learning.placement.imitation import watch
from dl2_scheduler.learning.placement.judging import TAUGHT, PlacementJudge
from dl2_scheduler.policies.placement.registry import local_search
from dl2_scheduler.sim.placed.scenario import Scenario

FULL, SUPERVISED = "full", "supervised first"
VARIANTS: Mapping[str, dict[str, Any]] = {
    SUPERVISED: {"explore": 0.05},
    FULL: {},
    "no value net": {"value": False},
    "no exploration": {"explore": 0.0},
    "no replay": {"replay": 0},
    **{f"{units} neurons": {"hidden": (units,) * 3} for units in (32, 64, 128, 196)},
    **{f"{layers} layers": {"hidden": (128,) * layers} for layers in (1, 2, 4, 5)},
}
"""What a variant changes; `full` begins from nothing, as in the paper."""
PARTS = FOLDER / "placement_harmony_paper"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=HarmonySettings().updates)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    arguments = parser.parse_args()
    made = {
        (name, seed): _file(name, seed, HarmonySettings(updates=arguments.updates, **VARIANTS[name]))
        for name in arguments.variants
        for seed in range(arguments.seeds)
    }
    if missing := {each: file for each, file in made.items() if not file.exists()}:
        _learn(missing, arguments.updates)
    rows = [json.loads(file.read_text()) for file in made.values()]
    goals = [
        at_most(f"{row['variant']}, seed {row['seed']}: over {PLANNER}", 2.0, row["over %"], "%")
        for row in rows
        if row["variant"] in (FULL, SUPERVISED)
    ]
    return finish("placement_harmony_paper", rows, goals, ["numpy", "torch", "numba"])


def _file(name: str, seed: int, settings: HarmonySettings) -> Path:
    jobs = [Scenario.harmony(load).jobs(FIRST) for load in LOADS]
    return PARTS / f"{name.replace(' ', '-')}-{seed}-{settings_key(settings, TAUGHT_SEQUENCES, SAMPLES, jobs)}.json"


def _learn(missing: Mapping[tuple[str, int], Path], updates: int) -> None:
    """Learn some variants, and keep what each was worth."""
    PARTS.mkdir(parents=True, exist_ok=True)
    true = [Scenario.harmony(load) for load in LOADS]
    seen, model = seen_worlds(true, true[0])
    planner = local_search(model)
    judge = PlacementJudge(seen, planner, SELECTED_SEQUENCES)
    tested = range(FIRST, FIRST + SEQUENCES)
    planned = [compare_placements(scenario, {PLANNER: planner}, tested).means[PLANNER] for scenario in true]
    lessons = HarmonyChoices()
    if any(name == SUPERVISED for name, _ in missing):
        watch(seen, planner, range(TAUGHT, TAUGHT + TAUGHT_SEQUENCES), [lessons])
    for (name, seed), file in missing.items():
        print(f"{name}, seed {seed}")
        began, told = time.monotonic(), []

        def tell(line: str, told: list[float] = told) -> None:
            print(line, flush=True)
            told.append(float(line.split(":")[1].strip(" %")))

        settings = HarmonySettings(updates=updates, **VARIANTS[name])
        net = learn_harmony(seen, lessons if name == SUPERVISED else None, judge, settings, seed, tell)
        row: dict[str, Any] = {"variant": name, "seed": seed, "updates": updates, "over % where selected": min(told)}
        row["over % where selected, at the start"] = told[0]
        over = []
        for load, scenario, plan in zip(LOADS, true, planned, strict=True):
            means = compare_placements(scenario, {name: HarmonyPlacer(net)}, tested).means[name]
            row[f"intervals at load {load:g}"] = round(float(means.mean()), 3)
            over.append(float((means / plan - 1).mean()))
        row["over %"] = round(100 * float(np.mean(over)), 1)
        row["minutes"] = round((time.monotonic() - began) / 60, 1)
        file.write_text(json.dumps(row))


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
