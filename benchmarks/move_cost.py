"""This benchmark measures what it costs a job that its tasks move to other cores, as by `dl2 serve --move-tasks`.

    python -m benchmarks.move_cost [--repeats 20] [--window 2.0]

A job of each kind of `benchmarks.measure_interference` trains alone, its worker and its server on the first of two
nodes of this machine, or the second. In every second window both are moved to the other node in the middle. What the
job makes less in such windows than in those beside them, over its speed, is what a move costs in seconds of training.
"""

import argparse
import itertools
import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.pinned_jobs import JobKind, PinnedJob, running
from benchmarks.support.report import FOLDER, as_program, at_most, finish
from dl2_scheduler.backends.local.places.settling import PIN_COST
from dl2_scheduler.cluster.errors import SchedulerError

KINDS = ("device", "digits", "lstm", "mlp", "table", "wide")
_SETTLE_SECONDS = 1.0


def main() -> int:
    """Measure all kinds; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="windows with a move, and as many without")
    parser.add_argument("--window", type=float, default=2.0, metavar="SECONDS")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SchedulerError("two nodes need two cores, and this program may use one")
    nodes = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    with running([JobKind(model) for model in KINDS], Path(FOLDER) / "move_cost") as jobs:
        rows = [_row(job, nodes, arguments) for job in jobs]
    worst = max(row["upper"] for row in rows)
    goal = at_most(
        "a move costs a job, of all kinds the most, upper end of the 95% interval", PIN_COST.stopped, worst, "s"
    )
    return finish("move_cost", rows, [goal], ["numpy"])


def _row(job: PinnedJob, nodes: Sequence[Sequence[int]], arguments: argparse.Namespace) -> Mapping[str, Any]:
    job.open(True)
    try:
        lost = list(_lost(job, nodes, arguments))
    finally:
        job.open(False)
    mean = statistics.fmean(lost)
    half = 1.96 * statistics.stdev(lost) / math.sqrt(len(lost))
    return {"kind": job.kind.model, "lost_s": round(mean, 3), "half": round(half, 3), "upper": round(mean + half, 3)}


def _lost(job: PinnedJob, nodes: Sequence[Sequence[int]], arguments: argparse.Namespace) -> Iterator[float]:
    """Yield, for each move, the seconds of training by which its window is behind the mean of the two beside it."""
    turns = itertools.cycle((1, 0))
    _pin(job, nodes[0])
    time.sleep(_SETTLE_SECONDS)
    before = _made(job, arguments.window, None)
    for _ in range(arguments.repeats):
        moved = _made(job, arguments.window, nodes[next(turns)])
        after = _made(job, arguments.window, None)
        yield arguments.window * (1 - moved / statistics.fmean((before, after)))
        before = after


def _made(job: PinnedJob, window: float, target: Sequence[int] | None) -> float:
    """Return the samples a second that a job makes in a window, in the middle of which it may be moved."""
    began = job.made()
    time.sleep(window / 2)
    if target is not None:
        _pin(job, target)
    time.sleep(window / 2)
    ended = job.made()
    return (ended.samples - began.samples) / (ended.seconds - began.seconds)


def _pin(job: PinnedJob, cores: Sequence[int]) -> None:
    job.pin([cores] * job.kind.workers, [cores] * job.kind.servers)


if __name__ == "__main__":
    as_program(main)
