"""Measure jobs of PyTorch without servers: what scaling costs, steps beside DistributedDataParallel, deaths.

    python -m benchmarks.allreduce [--parts scaling steps compressed overlap kills] [--models resnet50 vgg16 lstm]
        [--plans 114] [--device 0] [--steps 20] [--rounds 2] [--workers 2 4] [--kills 200]

    scaling     workers come and go, from 1 to 3, one or two at once. How long a worker's script is suspended by a plan,
                and what its next five steps take longer than later ones; of the models ResNet-50 and VGG-16. Without
                --device next to nothing is computed: a joiner comes to the last version in none of its time
    steps       a step with `overlap=True` beside DDP with gloo, which overlaps; next to nothing is computed, so it
                is exchange and update
    compressed  the same steps with gradients that travel as bfloat16, beside DDP with bf16_compress_hook
    overlap     a device is emulated whose backward pass takes 160 ms; 2 workers. How much of the exchange
                `overlap=True` hides
    kills       one of three workers is killed at any moment, every third time while a plan is under way; float64. How
                many steps are made again, and whether samples and weights are those of an undisturbed job

Models have the shapes of ResNet-50 (102 MB), VGG-16 (553 MB) and an LSTM (79 MB), one compute thread to a process.
"""

import argparse
import shutil
from collections.abc import Iterator
from typing import Any

from benchmarks.scripts.train_torch import OVERLAPPING
from benchmarks.support.beside_ddp import overlap, steps_beside_ddp
from benchmarks.support.killed_workers import killed_workers
from benchmarks.support.kvstores import Size
from benchmarks.support.report import FOLDER as RESULTS
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish_each
from benchmarks.support.worker_scaling import device_parser, worker_scaling

FOLDER = RESULTS / "allreduce"
PARTS = ("scaling", "steps", "compressed", "overlap", "kills")
MODELS = ("resnet50", "vgg16", "lstm")
SCALED = MODELS[:2]
MODE = ("--mode", "all-reduce", "--join-timeout", "300")

Result = tuple[dict[str, Any], list[BenchmarkGoal]]


def main() -> int:
    """Measure, print, write build/bench/allreduce.json after each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[device_parser()]
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--plans", type=int, default=114, help="of each model (default 114: 200 pairs and more)")
    parser.add_argument("--steps", type=int, default=20, help="of a run, after the warm-up (default 20)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each system (default 2)")
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4], help="of the steps (default 2 4)")
    parser.add_argument("--kills", type=int, default=200, help="of workers (default 200)")
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    return finish_each("allreduce", _results(arguments), ("torch",))


def _results(arguments: argparse.Namespace) -> Iterator[Result]:
    """Measure what was asked for, one result after the other."""
    if "scaling" in arguments.parts:
        yield from (_scaling(model, arguments.plans, arguments.device) for model in arguments.models if model in SCALED)
    if "steps" in arguments.parts:
        for model in arguments.models:
            for workers in arguments.workers:
                yield _steps(model, workers, arguments.steps, arguments.rounds)
    if "compressed" in arguments.parts:
        for model in arguments.models:
            yield _compressed(model, arguments.steps, arguments.rounds)
    if "overlap" in arguments.parts:
        yield overlap(FOLDER, arguments.models[0], Size(2, 0), arguments.steps, MODE)
    if "kills" in arguments.parts:
        yield killed_workers(FOLDER, arguments.kills, 0, MODE)


def _scaling(model: str, plans: int, device: float) -> Result:
    return worker_scaling(FOLDER / f"scaling-{model}", model, plans, device, 0, MODE)


def _steps(model: str, workers: int, steps: int, rounds: int) -> Result:
    row = steps_beside_ddp(FOLDER, "steps", model, Size(workers, 0), steps, rounds, MODE, OVERLAPPING)
    row["ratio"] = row["elastic ms"] / row["ddp ms"]
    return row, [at_most(f"{model}, {workers} workers: step over DDP's", 1.05, row["ratio"], "times")]


def _compressed(model: str, steps: int, rounds: int) -> Result:
    more = ("--compression", "bfloat16")
    row = steps_beside_ddp(FOLDER, "compressed", model, Size(2, 0), steps, rounds, MODE, OVERLAPPING, more)
    return row | {"ratio": row["elastic ms"] / row["ddp ms"]}, []


if __name__ == "__main__":
    as_program(main)
