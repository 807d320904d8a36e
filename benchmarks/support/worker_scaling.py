"""This module measures what it costs a job that its workers come and go, from 1 to 3, one or two at once."""

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scripts.train_torch import ELASTIC
from benchmarks.support.beside_ddp import TRAIN_TORCH
from benchmarks.support.report import BenchmarkGoal, at_least, at_most
from coordinator.archive import Archive
from dl2_scheduler.backends.trial import Trial
from protos import elastic_pb2 as pb

COUNTS = (2, 3, 1, 3, 2, 1)
"""Workers after each plan, in turn."""

PAIRS = 200
NEXT, USUAL = 5, 20
"""Steps after a plan's clock that may be longer, and those behind them that say what is usual."""


def device_parser() -> argparse.ArgumentParser:
    """Return a parent parser with the option of jobs that scale while a device is emulated."""
    parser = argparse.ArgumentParser(add_help=False)
    explanation = "that a backward pass takes while jobs scale (default 0)"
    parser.add_argument("--device", type=float, default=0.0, metavar="MS", help=explanation)
    return parser


def worker_scaling(
    folder: Path, model: str, plans: int, device: float, servers: int, options: Sequence[str] = ()
) -> tuple[dict[str, Any], list[BenchmarkGoal]]:
    """Run a job and scale it so often; return a row and its goals.

    Args:
        folder: of the job.
        model: name of what it trains.
        plans: how many.
        device: milliseconds that an emulated device takes for a backward pass; 0: next to nothing is computed.
        servers: of the job; 0: it has none.
        options: of elasticrun.
    """
    script = [TRAIN_TORCH, ELASTIC, model, str(folder), "--device", str(device)]
    model = f"{model}, device {device:g} ms" if device else model
    with Trial(folder, "scaling", script, 1, servers, options) as job:
        job.until(2 * USUAL)
        made: list[pb.Plan] = []
        for number in range(plans):
            made.append(job.scale(workers=COUNTS[number % len(COUNTS)]))
            job.until(made[-1].clock + NEXT + USUAL)
            print(f"{model}: plan {number + 1} of {plans}", file=sys.stderr, flush=True)
        job.until(job.version() + 10 * USUAL)  # so that the last steps' times have reached the coordinator
        archive = job.stop()
    assert archive is not None, "the job has run"
    suspended = [ms for plan in made for ms in plan.suspension_ms.values()]
    # Who joins has nothing else to do at the switch: it waits for the others, and none of them for it.
    trained = [ms for plan in made for worker, ms in plan.suspension_ms.items() if worker not in plan.joined]
    seconds = _seconds(archive)
    by_plan = [list(_excess(seconds, plan)) for plan in made]
    by_step = [steps for found in by_plan for steps in found]
    excess = [sum(steps) for steps in by_step]
    row = {
        "part": "scaling",
        "model": model,
        "plans": len(made),
        "pairs": len(suspended),
        "suspension ms, median": statistics.median(suspended),
        "suspension ms, p99": float(np.percentile(suspended, 99)),
        "most ms": max(suspended),
        "of who trained, p99": float(np.percentile(trained, 99)),
        "excess of the next five steps ms, median": statistics.median(excess),
        **{f"of step {number + 1}": statistics.median(ms) for number, ms in enumerate(zip(*by_step, strict=True))},
        **_excess_by_change(by_plan),
        "load": os.getloadavg()[0],
    }
    goals = [
        at_least(f"{model}: (plan, worker) pairs", PAIRS, len(suspended), "pairs"),
        at_most(f"{model}: suspension, p99", 10, row["suspension ms, p99"], "ms"),
        at_most(f"{model}: excess of the next five steps, median", 10, statistics.median(excess), "ms"),
    ]
    return row, goals


def _excess_by_change(by_plan: Sequence[Sequence[Sequence[float]]]) -> dict[str, float]:
    """Return by change of the number of workers what five steps took longer in the median, in ms, all together."""
    found: dict[str, list[float]] = defaultdict(list)
    for number, steps in enumerate(by_plan):
        before, after = COUNTS[(number - 1) % len(COUNTS)], COUNTS[number % len(COUNTS)]
        found[f"from {before} to {after}"] += map(sum, steps)
    return {change: statistics.median(excess) for change, excess in found.items() if excess}


def _seconds(archive: Archive) -> dict[str, dict[int, float]]:
    """Return how long steps took, by worker and version."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in archive.steps:
        found[row.worker][row.step.version] = row.step.seconds
    return found


def _excess(seconds: Mapping[str, Mapping[int, float]], plan: pb.Plan) -> Iterator[list[float]]:
    """Yield, by worker that trained before a plan, what each of five steps behind its clock took longer, in ms.

    Longer than later ones, that is. Who joins has made no step before: its first one begins with the switch.
    """
    following = range(plan.clock + 1, plan.clock + 1 + NEXT)
    later = range(following.stop, following.stop + USUAL)
    for steps in (steps for worker, steps in seconds.items() if worker not in plan.joined):
        if all(version in steps for version in (*following, *later)):
            usual = statistics.median(steps[version] for version in later)
            yield [1000 * (steps[version] - usual) for version in following]
