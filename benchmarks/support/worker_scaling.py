"""This module measures what it costs a job that its workers come and go, from 1 to 3, one or two at once."""

import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.report import BenchmarkGoal, at_least, at_most
from coordinator.archive import Archive
from dl2_scheduler.backends.trial import Trial
from protos import elastic_pb2 as pb

COUNTS = (2, 3, 1, 3, 2, 1)
"""Workers after each plan, in turn."""

PAIRS = 200
NEXT, USUAL = 5, 20
"""Steps after a plan's clock that may be longer, and those behind them that say what is usual."""


def worker_scaling(
    folder: Path, script: Sequence[str], model: str, plans: int, servers: int, options: Sequence[str] = ()
) -> tuple[dict[str, Any], list[BenchmarkGoal]]:
    """Run a job and scale it so often; return a row and its goals.

    Args:
        folder: of the job.
        script: module that workers run, with its arguments.
        model: name of what it trains.
        plans: how many.
        servers: of the job; 0: it has none.
        options: of elasticrun.
    """
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
    by_step = list(_excess(archive, made))
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
        "load": os.getloadavg()[0],
    }
    goals = [
        at_least(f"{model}: (plan, worker) pairs", PAIRS, len(suspended), "pairs"),
        at_most(f"{model}: suspension, p99", 10, row["suspension ms, p99"], "ms"),
        at_most(f"{model}: excess of the next five steps, median", 10, statistics.median(excess), "ms"),
    ]
    return row, goals


def _excess(archive: Archive, plans: Sequence[pb.Plan]) -> Iterator[list[float]]:
    """Yield, by plan and worker that trained before it, what each of five steps behind the clock took longer, in ms.

    Longer than later ones, that is. Who joins has made no step before: its first one begins with the switch.
    """
    seconds: dict[str, dict[int, float]] = defaultdict(dict)
    for row in archive.steps:
        seconds[row.worker][row.step.version] = row.step.seconds
    for plan in plans:
        following = range(plan.clock + 1, plan.clock + 1 + NEXT)
        later = range(following.stop, following.stop + USUAL)
        for steps in (steps for worker, steps in seconds.items() if worker not in plan.joined):
            if all(version in steps for version in (*following, *later)):
                usual = statistics.median(steps[version] for version in later)
                yield [1000 * (steps[version] - usual) for version in following]
