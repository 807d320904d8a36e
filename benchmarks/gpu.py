"""Run jobs of PyTorch whose workers share one GPU: the examples, and steps beside DistributedDataParallel with gloo.

    python -m benchmarks.gpu [--parts examples steps] [--steps 20] [--rounds 2]

    examples  digits and the language model, each with servers and without, 2 workers: on the GPU and on the CPU, what
              they have learnt and how long it took, starts and all
    steps     a step of 2 workers that next to nothing is computed in, with shapes of ResNet-50 (102 MB): without
              servers, and with 1 server in shared memory

It is for a machine with a GPU of CUDA, and no part of `make bench`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.support.beside_ddp import steps_beside_ddp
from benchmarks.support.kvstores import Size
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish_each

FOLDER = Path("build/bench/gpu")
PARTS = ("examples", "steps")
MODES = {"servers": ("--servers", "1"), "all-reduce": ("--mode", "all-reduce")}
_EXAMPLES = {"digits": ("--epochs", "10"), "language_model": ("--epochs", "3")}
_LEARNT = {"digits": "test_accuracy", "language_model": "bits_per_letter"}
_WORKERS = 2
_LONGEST_SECONDS = 300.0
_WITHIN = 0.02
"""So much worse than on the CPU a result on the GPU may be: the bits of both differ, and what is drawn at random."""

Result = tuple[dict[str, Any], list[BenchmarkGoal]]


def main() -> int:
    """Measure, print, write build/bench/gpu.json after each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--steps", type=int, default=20, help="of a run, after the warm-up (default 20)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each system (default 2)")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU of CUDA here")
    shutil.rmtree(FOLDER, ignore_errors=True)
    print(torch.cuda.get_device_name(), file=sys.stderr)
    parts = {"examples": examples(), "steps": steps(arguments.steps, arguments.rounds)}
    return finish_each("gpu", (result for part in arguments.parts for result in parts[part]), ("torch",))


def examples() -> Iterator[Result]:
    """Yield a row for each example and mode."""
    for example, options in _EXAMPLES.items():
        for mode, of_mode in MODES.items():
            seconds, learnt = {}, {}
            for device in ("cuda", "cpu"):
                started = time.monotonic()
                learnt[device] = _learnt(example, f"{example}-{mode}-{device}", of_mode, (*options, "--device", device))
                seconds[device] = time.monotonic() - started
            row = {
                "part": "examples",
                "example": example,
                "mode": mode,
                "GPU": learnt["cuda"],
                "CPU": learnt["cpu"],
                "GPU s": seconds["cuda"],
                "CPU s": seconds["cpu"],
            }
            name = f"{example}, {mode}: {_LEARNT[example]} on the GPU"
            if example == "digits":
                yield row, [at_least(name, learnt["cpu"] * (1 - _WITHIN), learnt["cuda"], "")]
            else:
                yield row, [at_most(name, learnt["cpu"] * (1 + _WITHIN), learnt["cuda"], "bits")]


def _learnt(example: str, name: str, of_mode: tuple[str, ...], options: tuple[str, ...]) -> float:
    """Run an example as a job, and return what it has written."""
    folder = FOLDER / name
    folder.mkdir(parents=True)
    found = folder / "learnt.json"
    job = ["--workers", str(_WORKERS), *of_mode, "--name", name]
    script = [f"examples/torch/{example}.py", *options, "--out", str(found)]
    with (folder / "log").open("w") as log:
        subprocess.run(
            [sys.executable, "-m", "elastic_ps.launch", *job, *script],
            check=True,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=_LONGEST_SECONDS,
            env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder.absolute())},
        )
    return float(json.loads(found.read_text())[_LEARNT[example]])


def steps(count: int, rounds: int) -> Iterator[Result]:
    """Yield a row for each mode: steps on the GPU beside DistributedDataParallel's there."""
    for mode, servers, options in (("all-reduce", 0, MODES["all-reduce"]), ("servers", 1, ())):
        size = Size(_WORKERS, servers)
        folder = FOLDER / f"steps-{mode}"
        row = steps_beside_ddp(folder, f"steps, {mode}", "resnet50", size, count, rounds, options, more=("--cuda",))
        row["ratio"] = row["elastic ms"] / row["ddp ms"]
        limit = 1.05 if mode == "all-reduce" else 0.5
        yield row, [at_most(f"steps on the GPU, {mode}: our time over DDP's", limit, row["ratio"], "times")]


if __name__ == "__main__":
    as_program(main)
