"""This benchmark learns placement policies and compares them with rules and planners, on sequences nobody learnt from.

    python -m benchmarks.placement_harmony [--seeds 5] [--updates 600] [--patterns uniform-2 poisson-2 ...]
    python -m benchmarks.placement_harmony --servers 30 --seeds 1 --updates 200 --sequences 4 --patterns uniform-2

Six servers of Harmony's testbed, 60 jobs a sequence, ten sequences a pattern of arrivals, in the mechanistic world; or
more servers, with as many more jobs, but fewer sequences to learn from and to be selected by: planning takes longer.
Annealing is left out there, as it takes hours.
What is learnt sees this world only in 13,177 noisy samples of speeds: it imitates a planner and learns in clusters with
the speeds of a model fitted to the samples, with uniform arrivals of 2 and of 3 jobs an interval. Each seed's run is
kept in build/bench/placement_harmony/seed-N-KEY, for `--placement learnt:RUN` and for the next call, which learns only
what is not there with the same settings and jobs: KEY stands for them. Each is played as it is, and looking ahead: it
tries 64 ways to place an interval's jobs in the fitted world, where jobs of both loads may come. Goals are of the
median seed; rules are in the order of jobs that suits them best, and the planner to beat is the better of two.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.placement import FIRST, RULES, SAMPLES
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
from dl2_scheduler.figures.placement.fitted_model import fitted_model
from dl2_scheduler.learning.placement.branching import BranchSettings
from dl2_scheduler.learning.placement.lockstep.tasks import Lockstep
from dl2_scheduler.learning.placement.placer_lessons import learn_run, take_lessons
from dl2_scheduler.learning.placement.placer_run import PlacerSettings
from dl2_scheduler.learning.placement.roll_out_placer import RollOutPlacer
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.policies.learnt.placer_files import PlacerRun, open_placer
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from dl2_scheduler.policies.placement.registry import local_search
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from dl2_scheduler.sim.placed.scenario import Scenario

PAPER = 25.0
"""By how many percent it is to lie under each at other arrivals."""
PLANNER, _, ANNEALING = planner_names(FITTED)
KINDS = LEARNT, AHEAD = "learnt", "look-ahead"
"""The learnt policy as it is, and looking ahead."""
LOADS = 2.0, 3.0
SIX = 6
"""Servers of the testbed, to which loads and patterns belong."""
TAUGHT_SEQUENCES = 20
SELECTED_SEQUENCES = 20
SEQUENCES = 10
_DONE = "run.json"


@dataclass(frozen=True)
class Testbed:
    """A `Testbed` is Harmony's, or a larger one of the same servers.

    Attributes:
        servers: how many; with more of them more jobs come, and sequences are longer and fewer.
    """

    servers: int = SIX

    def scenario(self, load: float, pattern: str = "uniform") -> Scenario:
        """Return where jobs come.

        Args:
            load: jobs an interval for each six servers.
            pattern: see `Workload`.
        """
        return Scenario.harmony(load * self.servers / SIX, pattern, self.servers)

    def scenarios(self) -> list[Scenario]:
        """Return where policies learn: one scenario for each load."""
        return [self.scenario(load) for load in LOADS]

    def fewer(self, of_six: int) -> int:
        """Return a number that belongs to six servers, in proportion to jobs."""
        return max(1, of_six * SIX // self.servers)

    @property
    def name(self) -> str:
        """Return the name of the benchmark there."""
        return "placement_harmony" if self.servers == SIX else f"placement_harmony_{self.servers}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="policies that are learnt")
    parser.add_argument("--updates", type=int, default=600, help="from rewards")
    parser.add_argument("--patterns", nargs="+", default=["uniform-2", "uniform-3", "poisson-2", "google-2"])
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument("--servers", type=int, default=SIX)
    arguments = parser.parse_args()
    testbed = Testbed(arguments.servers)
    states = testbed.fewer(BranchSettings().states)
    settings = PlacerSettings(updates=arguments.updates, branching=BranchSettings(states=states))
    folder, key = FOLDER / testbed.name, _key(testbed, settings)
    runs = [folder / f"seed-{seed}-{key}" for seed in range(arguments.seeds)]
    if missing := {seed: run for seed, run in enumerate(runs) if not (run / _DONE).exists()}:
        _learn(testbed, missing, settings)
    opened = [open_placer(run) for run in runs]
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    for pattern in arguments.patterns:
        name, load = pattern.split("-")
        scenario = testbed.scenario(float(load), name)
        policies = {**_others(scenario, opened[0].speeds), **_played(testbed, opened)}
        compared = compare_placements(scenario, policies, range(FIRST, FIRST + arguments.sequences), _tell)
        rows += _rows(pattern, compared)
        goals += _goals(pattern, compared)
        for row in rows[-len(compared.means) :]:
            print(row, flush=True)
    minutes = [json.loads((run / _DONE).read_text())["minutes"] for run in runs]
    goals.append(at_most("training of a policy, median", 60.0, float(np.median(minutes)), "minutes"))
    if testbed.servers == SIX:
        goals += _speed_goals(opened[0])
    return finish(testbed.name, rows, goals, ["numpy", "torch", "numba"])


def _key(testbed: Testbed, settings: PlacerSettings) -> str:
    jobs = [scenario.jobs(FIRST) for scenario in testbed.scenarios()]
    taught, selected = testbed.fewer(TAUGHT_SEQUENCES), testbed.fewer(SELECTED_SEQUENCES)
    return settings_key(settings, taught, selected, SAMPLES, jobs)


def _learn(testbed: Testbed, missing: Mapping[int, Path], settings: PlacerSettings) -> None:
    """Learn the policies of some seeds, and keep each with the time that it took, lessons and all.

    The model of speeds is fitted to placements on six servers, whatever the testbed: it reads groups, not clusters.
    """
    began = time.monotonic()
    seen, model = seen_worlds(testbed.scenarios(), Testbed().scenario(LOADS[0]))
    sequences = testbed.fewer(TAUGHT_SEQUENCES), testbed.fewer(SELECTED_SEQUENCES)
    lessons = take_lessons(seen, local_search(model), *sequences)
    common = time.monotonic() - began
    for seed, run in missing.items():
        print(f"{run}: {settings}")
        began = time.monotonic()
        learn_run(run, model, lessons, settings, seed, lambda done, excess: _tell(f"{done} updates: {excess:+.1%}"))
        minutes = (time.monotonic() - began + common) / 60
        (run / _DONE).write_text(json.dumps({"minutes": minutes, "settings": repr(settings)}))


def _tell(line: str) -> None:
    print(line, flush=True)


def seen_worlds(true: Sequence[Scenario], measured: Scenario) -> tuple[list[Scenario], SpeedModel]:
    """Return the scenarios as learners see them, and the model that is fitted to samples of one.

    Args:
        true: the scenarios.
        measured: with the same servers and models, where the samples are taken.
    """
    model = fitted_model(measured, SAMPLES)
    assert model.speeds is not None
    return [replace(scenario, world=model.speeds) for scenario in true], model


def _others(scenario: Scenario, speeds: PooledSpeed | None) -> Mapping[str, PlacementPolicy]:
    wanted = (PLANNER, *_annealing(scenario), *RULES)
    return {name: each for name, each in contenders(scenario, speeds).items() if name.startswith(wanted)}


def _annealing(scenario: Scenario) -> tuple[str, ...]:
    """Return the name of the planner that only small clusters have."""
    return (ANNEALING,) if len(scenario.machines.nodes) <= SIX else ()


def _played(testbed: Testbed, runs: Sequence[PlacerRun]) -> dict[str, PlacementPolicy]:
    """Return each seed's policy as it is, and looking ahead."""
    found: dict[str, PlacementPolicy] = {f"{LEARNT}, seed {seed}": run.placer for seed, run in enumerate(runs)}
    for seed, run in enumerate(runs):
        assert run.speeds is not None
        may_come = [replace(scenario, world=run.speeds) for scenario in testbed.scenarios()]
        found[f"{AHEAD}, seed {seed}"] = RollOutPlacer(run.placer, may_come)
    return found


def _median(found: PlacementComparison, kind: str) -> str:
    """Return the name of the median policy of a kind, the worse of the two in the middle."""
    names = _of_kind(found, kind)
    return sorted(names, key=found.mean)[len(names) // 2]


def _of_kind(found: PlacementComparison, kind: str) -> list[str]:
    return [name for name in found.means if name.startswith(f"{kind}, seed ")]


def _rows(pattern: str, found: PlacementComparison) -> list[dict[str, Any]]:
    rows = []
    for name in found.means:
        row: dict[str, Any] = {"arrivals": pattern, "policy": name, "intervals": round(found.mean(name), 3)}
        for kind in KINDS:
            gain = found.under(_median(found, kind), name)
            row[f"median {kind} under it %"] = round(gain.mean, 1)
            row[f"{kind} +-"] = None if gain.margin is None else round(gain.margin, 1)
        rows.append(row)
    return rows


def _goals(pattern: str, found: PlacementComparison) -> list[BenchmarkGoal]:
    uniform, goals = pattern.startswith("uniform"), []
    planner = min((name for name in (PLANNER, ANNEALING) if name in found.means), key=found.mean)
    for kind in KINDS:
        middle = _median(found, kind)
        goals += [
            at_least(
                f"{pattern}: {kind} under {rule}",
                least if uniform else PAPER,
                found.under(middle, found.best(rule)).mean,
                "%",
            )
            for rule, least in RULES.items()
        ]
        spread = 100 * (max(map(found.mean, _of_kind(found, kind))) / found.mean(middle) - 1)
        goals += [
            at_least(
                f"{pattern}: {kind} under the better planner, {planner}", 3.0, found.under(middle, planner).mean, "%"
            ),
            at_most(f"{pattern}: {kind}, worst seed over the median", 5.0, spread, "%"),
        ]
    return goals


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
