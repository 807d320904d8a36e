"""A benchmark's steps of PyTorch, in turn with those of DistributedDataParallel with gloo, on the same shapes."""

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scripts.train_torch import ELASTIC
from benchmarks.support.kvstores import Size, run_ddp, run_own

TRAIN_TORCH = "benchmarks.scripts.train_torch"


def steps_beside_ddp(
    folder: Path, part: str, model: str, size: Size, steps: int, rounds: int, options: Sequence[str] = ()
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
    """
    ours: list[float] = []
    theirs: list[float] = []
    values: set[float] = set()
    name, more = f"{model}-{size.workers}", ("--workers", str(size.workers))
    for number in range(rounds):
        told = f"{model}: {part} of {size.workers} workers, round {number + 1} of {rounds}"
        print(told, file=sys.stderr, flush=True)
        own = run_own(folder / f"own-{name}", TRAIN_TORCH, model, size, steps, options, ELASTIC, more)
        ddp = run_ddp(folder / f"ddp-{name}", TRAIN_TORCH, model, size.workers, steps)
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
