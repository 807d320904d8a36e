"""Steps of PyTorch that benchmarks time: beside DistributedDataParallel with gloo, and beside an emulated device."""

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scripts.train_torch import ELASTIC, OVERLAPPING
from benchmarks.support.kvstores import Size, run_ddp, run_own
from benchmarks.support.report import BenchmarkGoal, at_least

TRAIN_TORCH = "benchmarks.scripts.train_torch"
DEVICE_MS = 160.0
"""So long a backward pass of the emulated device takes."""

_ROUNDS = 3  # of what is compared, in turn: the machine is not always as fast


def steps_beside_ddp(
    folder: Path,
    part: str,
    model: str,
    size: Size,
    steps: int,
    rounds: int,
    options: Sequence[str] = (),
    system: str = ELASTIC,
    more: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the row of a model's steps: medians and peak memory of both systems.

    Args:
        folder: of the benchmark.
        part: of the benchmark, as its row names it.
        model: one of `support.models`.
        size: of our job; DDP has as many workers.
        steps: of a run, after the warm-up.
        rounds: runs of each system.
        options: of elasticrun.
        system: of ours, as `train_torch` names it.
        more: further arguments of `train_torch`, for both.
    """
    ours: list[float] = []
    theirs: list[float] = []
    values: set[float] = set()
    name, counted = f"{model}-{size.workers}", ("--workers", str(size.workers))
    for number in range(rounds):
        told = f"{model}: {part} of {size.workers} workers, round {number + 1} of {rounds}"
        print(told, file=sys.stderr, flush=True)
        own = run_own(folder / f"own-{name}", TRAIN_TORCH, model, size, steps, options, system, (*counted, *more))
        ddp = run_ddp(folder / f"ddp-{name}", TRAIN_TORCH, model, size.workers, steps, more)
        ours += own.seconds
        theirs += ddp.seconds
        values |= {own.value, ddp.value}
    assert values == {1.0}, f"weights are so many times what one process has: {values}"
    return {
        "part": part,
        "model": model,
        "workers": size.workers,
        "elastic ms": 1000 * statistics.median(ours),
        "ddp ms": 1000 * statistics.median(theirs),
        "elastic MB": own.peak_bytes / 1e6,
        "ddp MB": ddp.peak_bytes / 1e6,
        "load": os.getloadavg()[0],
    }


def overlap(
    folder: Path, model: str, size: Size, steps: int, options: Sequence[str]
) -> tuple[dict[str, Any], list[BenchmarkGoal]]:
    """Return the row, and the goal, of how much of the exchange `overlap=True` hides behind an emulated device.

    The exchange is what a step takes longer than without: than the device with servers, which update; than a lone
    worker's step without servers, which updates too, and copies gradients as they come.

    Args:
        folder: of the benchmark.
        model: one of `support.models`.
        size: of the job.
        steps: of a run, after the warm-up.
        options: of elasticrun.
    """
    runs = [(ELASTIC, size), (OVERLAPPING, size)]
    runs += [] if size.servers else [(OVERLAPPING, Size(1, 0))]
    seconds: list[list[float]] = [[] for _ in runs]
    for number in range(_ROUNDS):
        for (system, its_size), found in zip(runs, seconds, strict=True):
            name = f"{system}-{model}-{its_size.workers}"
            print(f"overlap: {name}, round {number + 1} of {_ROUNDS}", file=sys.stderr, flush=True)
            more = ("--workers", str(its_size.workers), "--device", str(DEVICE_MS))
            found += run_own(folder / name, TRAIN_TORCH, model, its_size, steps, options, system, more).seconds
    step, overlapping, *alone = [1000 * statistics.median(found) for found in seconds]
    without = alone[0] if alone else DEVICE_MS
    hidden = 100 * (step - overlapping) / (step - without)
    row = {
        "part": "overlap",
        "model": model,
        "step ms": step,
        "overlapping ms": overlapping,
        "without exchange ms": without,
        "hidden %": hidden,
        "load": os.getloadavg()[0],
    }
    return row, [at_least(f"{model}: of the exchange is hidden", 70, hidden, "%")]
