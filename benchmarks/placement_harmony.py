"""This benchmark learns placement policies and compares them with rules and planners, on sequences nobody learnt from.

    python -m benchmarks.placement_harmony [--seeds 5] [--updates 600] [--patterns uniform-2 poisson-2 ...]

Six servers of Harmony's testbed, 60 jobs a sequence, ten sequences a pattern of arrivals, in the mechanistic world.
What is learnt sees this world only in 13,177 noisy samples of speeds: it imitates a planner and learns in clusters with
the speeds of a model fitted to the samples, with uniform arrivals of 2 and of 3 jobs an interval. Each seed's run is
kept in build/bench/placement_harmony/seed-N-KEY, for `--placement learnt:RUN` and for the next call, which learns only
what is not there with the same settings and jobs: KEY stands for them. Goals are of the median seed; rules are in the
order of jobs that suits them best, and the planner to beat is the better of two.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.placement import FIRST, SAMPLES, fitted_speeds
from benchmarks.support.kept import settings_key
from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_least, at_most, finish
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import (
    FITTED,
    PlacementComparison,
    compare_placements,
    contenders,
    planner_names,
)
from dl2_scheduler.learning.placement.imitation import Choices, watch
from dl2_scheduler.learning.placement.judging import TAUGHT, PlacementJudge
from dl2_scheduler.learning.placement.lockstep_tasks import Lockstep
from dl2_scheduler.learning.placement.placer_run import PlacerSettings, learn_placer
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.policies.learnt.placer_files import PlacerRun, open_placer, save_placer
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.placed.scenario import Scenario

RULES = {"load balancing": 32.0, "best fit": 40.0, "LIF-linear, lb": 25.0, "LIF-quadratic, lb": 25.0}
RULES |= {"LIF-linear, own": 20.0, "LIF-quadratic, own": 20.0, "tetris-dot": 28.0}
"""By how many percent the learnt policy is to lie under each, at uniform arrivals."""
PAPER = 25.0
"""By how many percent it is to lie under each at other arrivals."""
PLANNER, _, ANNEALING = planner_names(FITTED)
LOADS = 2.0, 3.0
TAUGHT_SEQUENCES = 20
SELECTED_SEQUENCES = 20
SEQUENCES = 10
RUNS = FOLDER / "placement_harmony"
_DONE = "run.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="policies that are learnt")
    parser.add_argument("--updates", type=int, default=600, help="from rewards")
    parser.add_argument("--patterns", nargs="+", default=["uniform-2", "uniform-3", "poisson-2", "google-2"])
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    arguments = parser.parse_args()
    settings = PlacerSettings(updates=arguments.updates)
    runs = [RUNS / f"seed-{seed}-{_key(settings)}" for seed in range(arguments.seeds)]
    if missing := {seed: run for seed, run in enumerate(runs) if not (run / _DONE).exists()}:
        _learn(missing, settings)
    found = {f"learnt, seed {seed}": open_placer(run) for seed, run in enumerate(runs)}
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    for pattern in arguments.patterns:
        name, load = pattern.split("-")
        scenario = Scenario.harmony(float(load), name)
        policies = {**_others(scenario, found["learnt, seed 0"].speeds), **found}
        compared = compare_placements(scenario, policies, range(FIRST, FIRST + arguments.sequences), print)
        rows += _rows(pattern, compared, list(found))
        goals += _goals(pattern, compared, list(found))
    minutes = [json.loads((run / _DONE).read_text())["minutes"] for run in runs]
    goals.append(at_most("training of a policy, median", 60.0, float(np.median(minutes)), "minutes"))
    goals += _speed_goals(found["learnt, seed 0"])
    return finish("placement_harmony", rows, goals, ["numpy", "torch", "numba"])


def _key(settings: PlacerSettings) -> str:
    jobs = [Scenario.harmony(load).jobs(FIRST) for load in LOADS]
    return settings_key(settings, TAUGHT_SEQUENCES, SELECTED_SEQUENCES, SAMPLES, jobs)


def _learn(missing: Mapping[int, Path], settings: PlacerSettings) -> None:
    """Learn the policies of some seeds, and keep each with the time that it took, lessons and all."""
    began = time.monotonic()
    true = [Scenario.harmony(load) for load in LOADS]
    speeds = fitted_speeds(true[0])
    seen, judge, planner = seen_worlds(true, speeds)
    lessons = Choices()
    watch(seen, planner, range(TAUGHT, TAUGHT + TAUGHT_SEQUENCES), [lessons])
    common = time.monotonic() - began
    for seed, run in missing.items():
        print(f"{run}: {settings}")
        began = time.monotonic()

        def keep(policy: LearntPlacer, run: Path = run) -> None:
            save_placer(run, PlacerRun(tuple(sorted(true[0].profiles)), policy, speeds))

        learn_placer(seen, lessons, judge, settings, seed, _tell, keep)
        minutes = (time.monotonic() - began + common) / 60
        (run / _DONE).write_text(json.dumps({"minutes": minutes, "settings": repr(settings)}))


def _tell(line: str) -> None:
    print(line, flush=True)


def seen_worlds(
    true: Sequence[Scenario], speeds: PooledSpeed
) -> tuple[list[Scenario], PlacementJudge, PlacementPolicy]:
    """Return the scenarios as learners see them, who judges them there, and the planner that they begin with.

    Args:
        true: the scenarios.
        speeds: that are fitted to them.
    """
    seen = [replace(scenario, world=speeds) for scenario in true]
    planner = contenders(true[0], speeds)[PLANNER]
    return seen, PlacementJudge(seen, planner, SELECTED_SEQUENCES), planner


def _others(scenario: Scenario, speeds: PooledSpeed | None) -> Mapping[str, PlacementPolicy]:
    wanted = (PLANNER, ANNEALING, *RULES)
    return {name: each for name, each in contenders(scenario, speeds).items() if name.startswith(wanted)}


def _median(found: PlacementComparison, learnt: Sequence[str]) -> str:
    """Return the name of the median policy, the worse of the two in the middle."""
    return sorted(learnt, key=found.mean)[len(learnt) // 2]


def _rows(pattern: str, found: PlacementComparison, learnt: Sequence[str]) -> list[dict[str, Any]]:
    middle, rows = _median(found, learnt), []
    for name, means in found.means.items():
        gain = found.under(middle, name)
        margin = None if gain.margin is None else round(gain.margin, 1)
        intervals = round(estimate(means.tolist()).mean, 3)
        row = {"arrivals": pattern, "policy": name, "intervals": intervals}
        rows.append({**row, "median learnt under it %": round(gain.mean, 1), "+-": margin})
    return rows


def _goals(pattern: str, found: PlacementComparison, learnt: Sequence[str]) -> list[BenchmarkGoal]:
    middle, uniform = _median(found, learnt), pattern.startswith("uniform")
    goals = [
        at_least(
            f"{pattern}: under {rule}", least if uniform else PAPER, found.under(middle, found.best(rule)).mean, "%"
        )
        for rule, least in RULES.items()
    ]
    spread = 100 * (max(map(found.mean, learnt)) / found.mean(middle) - 1)
    planner = min((PLANNER, ANNEALING), key=found.mean)
    return [
        *goals,
        at_least(f"{pattern}: under the better planner, {planner}", 3.0, found.under(middle, planner).mean, "%"),
        at_most(f"{pattern}: worst seed over the median", 5.0, spread, "%"),
    ]


def _speed_goals(run: PlacerRun) -> list[BenchmarkGoal]:
    """Return how fast a policy decides about one task, and about many clusters' in lockstep, on one core."""
    true = Scenario.harmony(LOADS[-1])
    assert run.speeds is not None
    seen = replace(true, world=run.speeds)
    sequences = [true.jobs(FIRST + number % SEQUENCES) for number in range(128)]
    count, alone = 0, Lockstep.begun(seen, sequences[:1])
    _in_lockstep(Lockstep.begun(seen, sequences[:1]), run.placer)  # compiled by now
    one = [array[:1] for array in alone.inputs(np.zeros(1, dtype=np.int64))]
    began = time.process_time()
    for _ in range(1000):
        run.placer.best_of(*one)
    each = (time.process_time() - began) / 1000
    many = Lockstep.begun(seen, sequences)
    began = time.process_time()
    count = _in_lockstep(many, run.placer)
    rate = count / (time.process_time() - began)
    return [
        at_most("inference of a task at 6 servers", 0.1, 1000 * each, "ms"),
        at_least("placements in lockstep on a core, a sixteenth of the issue's", 100_000 / 16, rate, "a second"),
        at_least("placements in lockstep on one core, as many as the issue wants of 16", 100_000, rate, "a second"),
    ]


def _in_lockstep(lockstep: Lockstep, policy: LearntPlacer) -> int:
    """Run clusters to their ends, and return how many tasks were placed."""
    count = 0

    def decide(*inputs: Any) -> Any:
        nonlocal count
        count += len(inputs[-1])
        return policy.best_of(*inputs[:3])

    lockstep.run(decide)
    return count


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
