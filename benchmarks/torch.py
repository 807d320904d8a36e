"""Measure jobs of PyTorch on parameter servers: what scaling costs, exchanges beside DistributedDataParallel, overlap.

    python -m benchmarks.torch [--parts scaling exchange overlap kills] [--models resnet50 vgg16] [--plans 114]
        [--device 0] [--steps 20] [--rounds 2] [--kills 200]

    scaling   workers come and go, from 1 to 3, one or two at once; one server. How long a worker's script is suspended
              by a plan, and what its next five steps take longer than later ones. Without --device next to nothing is
              computed: the exchange takes all of a step, and what the machine does besides is in it
    exchange  a step of 2 workers and 1 server in shared memory, beside DDP with gloo, in turn; next to nothing is
              computed
    overlap   a device is emulated whose backward pass takes 160 ms; 2 workers, 1 server, tcp. How much of the exchange
              `overlap=True` hides
    kills     one of three workers is killed at any moment, every third time while a plan is under way; one server,
              float64. How many steps are made again, and whether samples and weights are those of an undisturbed job

Models have the shapes of ResNet-50 (102 MB) and VGG-16 (553 MB), one compute thread to a process.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from benchmarks.support.beside_ddp import overlap, steps_beside_ddp
from benchmarks.support.killed_workers import killed_workers
from benchmarks.support.kvstores import Size
from benchmarks.support.models import MODELS
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, finish_each
from benchmarks.support.worker_scaling import device_parser, worker_scaling

FOLDER = Path("build/bench/torch")
PARTS = ("scaling", "exchange", "overlap", "kills")
_PAIR = Size(2, 1)


def main() -> int:
    """Measure, print, write build/bench/torch.json after each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[device_parser()]
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="*", choices=MODELS, default=["resnet50", "vgg16"])
    parser.add_argument("--plans", type=int, default=114, help="of the first model (default 114: 200 pairs and more)")
    parser.add_argument("--steps", type=int, default=20, help="of a run, after the warm-up (default 20)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each system (default 2)")
    parser.add_argument("--kills", type=int, default=200, help="of workers (default 200)")
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    parts = {
        "scaling": lambda model: _scaling(model, arguments.plans, arguments.device),
        "exchange": lambda model: _exchange(model, arguments.steps, arguments.rounds),
        "overlap": lambda model: _overlap(model, arguments.steps),
        "kills": lambda _: killed_workers(FOLDER, arguments.kills, servers=1),
    }
    results = (
        parts[part](model)
        for part in arguments.parts
        for model in (arguments.models[:1] if part in ("overlap", "kills") else arguments.models)
    )
    return finish_each("torch", results, ("torch",))


Result = tuple[dict[str, Any], list[BenchmarkGoal]]


# ---- scaling ---------------------------------------------------------------------------------------------------------


def _scaling(model: str, plans: int, device: float) -> Result:
    return worker_scaling(FOLDER / f"scaling-{model}", model, plans, device, servers=1)


# ---- steps -----------------------------------------------------------------------------------------------------------


def _exchange(model: str, steps: int, rounds: int) -> Result:
    row = steps_beside_ddp(FOLDER, "exchange", model, _PAIR, steps, rounds)
    row["ratio"] = row["ddp ms"] / row["elastic ms"]
    return row, [at_least(f"{model}: exchange, DDP's time over ours", 2, row["ratio"], "times")]


def _overlap(model: str, steps: int) -> Result:
    return overlap(FOLDER, model, _PAIR, steps, ("--transport", "tcp"))


if __name__ == "__main__":
    as_program(main)
