"""Measure jobs of PyTorch without servers: what scaling costs, steps beside DistributedDataParallel, deaths.

    python -m benchmarks.allreduce [--parts scaling steps kills] [--models resnet50 vgg16 lstm] [--plans 114]
        [--steps 20] [--rounds 2] [--workers 2 4] [--kills 200]

    scaling   workers come and go, from 1 to 3, one or two at once. How long a worker's script is suspended by a plan,
              and what its next five steps take longer than later ones; of the models ResNet-50 and VGG-16
    steps     a step beside DDP with gloo, in turn; next to nothing is computed, so it is exchange and update
    kills     one of three workers is killed at any moment, every third time while a plan is under way; float64. How
              many steps are made again, and whether samples and weights are those of an undisturbed job

Models have the shapes of ResNet-50 (102 MB), VGG-16 (553 MB) and an LSTM (79 MB), one compute thread to a process.
"""

import argparse
import os
import shutil
import sys
from typing import Any

from benchmarks.scripts.train_torch import ELASTIC
from benchmarks.support.beside_ddp import TRAIN_TORCH, steps_beside_ddp
from benchmarks.support.killed_workers import KilledWorkers, killed_workers
from benchmarks.support.kvstores import Size
from benchmarks.support.report import FOLDER as RESULTS
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from benchmarks.support.worker_scaling import worker_scaling

FOLDER = RESULTS / "allreduce"
PARTS = ("scaling", "steps", "kills")
MODELS = ("resnet50", "vgg16", "lstm")
SCALED = MODELS[:2]
KILLS_OF_A_JOB = 12
MODE = ("--mode", "all-reduce", "--join-timeout", "300")

Result = tuple[dict[str, Any], list[BenchmarkGoal]]


def main() -> int:
    """Measure, print, write build/bench/allreduce.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--plans", type=int, default=114, help="of each model (default 114: 200 pairs and more)")
    parser.add_argument("--steps", type=int, default=20, help="of a run, after the warm-up (default 20)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each system (default 2)")
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4], help="of the steps (default 2 4)")
    parser.add_argument("--kills", type=int, default=200, help="of workers (default 200)")
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    measured: list[Result] = []
    if "scaling" in arguments.parts:
        measured += [_scaling(model, arguments.plans) for model in arguments.models if model in SCALED]
    if "steps" in arguments.parts:
        measured += [
            _steps(model, workers, arguments.steps, arguments.rounds)
            for model in arguments.models
            for workers in arguments.workers
        ]
    if "kills" in arguments.parts:
        measured.append(_kills(arguments.kills))
    return finish(
        "allreduce", [row for row, _ in measured], [goal for _, goals in measured for goal in goals], ("torch",)
    )


def _scaling(model: str, plans: int) -> Result:
    folder = FOLDER / f"scaling-{model}"
    return worker_scaling(folder, [TRAIN_TORCH, ELASTIC, model, str(folder)], model, plans, 0, MODE)


def _steps(model: str, workers: int, steps: int, rounds: int) -> Result:
    row = steps_beside_ddp(FOLDER, "steps", model, Size(workers, 0), steps, rounds, MODE)
    row["ratio"] = row["elastic ms"] / row["ddp ms"]
    return row, [at_most(f"{model}, {workers} workers: step over DDP's", 1.05, row["ratio"], "times")]


def _kills(kills: int) -> Result:
    outcomes: list[KilledWorkers] = []
    while (left := kills - sum(outcome.kills for outcome in outcomes)) > 0:
        number = len(outcomes)
        print(f"kills: {kills - left} of {kills}", file=sys.stderr, flush=True)
        outcomes.append(killed_workers(FOLDER / f"kills-{number}", min(left, KILLS_OF_A_JOB), f"allreduce-{number}"))
        if not outcomes[-1].kills:
            raise SystemExit("a job has ended before anybody could be killed")
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    for problem in problems:
        print(problem, file=sys.stderr)
    made = sum(outcome.kills for outcome in outcomes)
    redone = sum(outcome.redone for outcome in outcomes)
    row = {
        "part": "kills",
        "jobs": len(outcomes),
        "kills": made,
        "during plans": sum(outcome.during_plans for outcome in outcomes),
        "survivors": sum(outcome.survivors for outcome in outcomes),
        "steps computed again, by all workers": redone,
        "a step again, at most": max(outcome.most for outcome in outcomes) - 1,
        "problems": len(problems),
        "load": os.getloadavg()[0],
    }
    return row, [
        at_least("kills: made", kills, made, "kills"),
        at_most(
            "kills: computed again by a survivor", 1, redone / sum(outcome.survivors for outcome in outcomes), "steps"
        ),
        at_most("kills: samples or weights that are not an undisturbed job's", 0, len(problems), "problems"),
    ]


if __name__ == "__main__":
    as_program(main)
