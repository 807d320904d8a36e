"""Measure the simulator's `ScalingCost`: what a real MXNet job loses at its start, and where its counts change.

    python -m benchmarks.scaling_cost [--starts 5] [--rounds 6]

The digits example under `elasticrun`, one worker and one server. A start is from the launch of `elasticrun` to the
first training step, anew or from a checkpoint: processes start, import MXNet, register, fetch parameters. What comes
before on a cluster, as the pull of a container's image, is not in it. A change is one worker or one server more, or
less, while the job trains. It loses what its steps take longer than as many undisturbed ones: those of the last epochs
before the plan up to the clock, those of the epochs after the change beyond. While new processes start, they take cores
from the workers where all are on one machine, which they would not on machines of their own; so that part stands apart.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.report import as_program, finish, under
from coordinator.archive import Archive
from dl2_scheduler.backends.trial import Trial
from protos import elastic_pb2 as pb

FOLDER = Path("build/bench/scaling_cost")
SCRIPT = ["examples.digits", "--epochs", "1000000"]
OPTIONS = ("--seed", "1")
EPOCH = 22  # steps; at an epoch's end the script tests, so undisturbed steps are those of whole epochs
BEFORE, AFTER = 2 * EPOCH, EPOCH
REPORTED = 20 * EPOCH  # so long that its first steps' times have reached the coordinator
CHANGES: Mapping[str, tuple[int, int]] = {
    "one worker more": (2, 1),
    "one worker less": (1, 1),
    "one server more": (1, 2),
    "one server less": (1, 1),
}
"""Workers and servers after each, in turn."""


@dataclass(frozen=True)
class Lost:
    """This is how many seconds a job lost.

    Attributes:
        what: happened.
        seconds: of training.
        starting: more, while new processes started beside it; None: it did not train then.
    """

    what: str
    seconds: float
    starting: float | None = None


def main() -> int:
    """Measure, print, write build/bench/scaling_cost.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="of each kind (default 5)")
    parser.add_argument("--rounds", type=int, default=6, help="in which each change happens once (default 6)")
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    losses = [lost for number in range(arguments.starts) for lost in _starts(number)]
    losses += _changes(arguments.rounds)
    rows = _rows(losses)
    worst = max(row["median s"] for row in rows if row["what"] in CHANGES)
    return finish("scaling_cost", rows, [under("a change, the worst median", 0.5, worst, "s")], ("mxnet", "grpcio"))


def _starts(number: int) -> list[Lost]:
    """Measure a start, a suspension, and a start from its checkpoint."""
    began = time.time()
    with Trial(FOLDER, f"first-{number}", SCRIPT, 1, 1, OPTIONS) as job:
        job.until(REPORTED)
        asked = time.time()
        saved = job.client.checkpoint((job.folder / "checkpoints").as_uri())
        first = job.stop()
        ended = time.time()
    with Trial(FOLDER, f"again-{number}", SCRIPT, 1, 1, (*OPTIONS, "--restore", saved.url)) as job:
        job.until(saved.version + REPORTED)
        again = job.stop()
    assert first is not None, "the first job has run"
    assert again is not None, "the second job has run"
    return [
        Lost("start", _first_step(first) - began),
        Lost("checkpoint and stop", ended - asked),
        Lost("start from the checkpoint", _first_step(again) - ended),
    ]


def _first_step(archive: Archive) -> float:
    """Return when the first step began: the end of the earliest one, less what a step usually takes."""
    steps = [row.step for row in archive.steps]
    usual = statistics.median(step.seconds for step in steps)
    return min(step.end for step in steps) - usual


def _changes(rounds: int) -> list[Lost]:
    plans: list[tuple[str, pb.Plan]] = []
    with Trial(FOLDER, "changes", SCRIPT, 1, 1, OPTIONS) as job:
        job.until(2 * BEFORE)
        for number in range(rounds):
            for what, (workers, servers) in CHANGES.items():
                plans.append((what, job.scale(servers, workers=workers)))
                job.until(plans[-1][1].clock + AFTER + BEFORE + EPOCH)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        job.until(job.version() + REPORTED)
        archive = job.stop()
    assert archive is not None, "the job has run"
    by_worker: dict[str, list[pb.StepTime]] = defaultdict(list)
    for row in archive.steps:
        by_worker[row.worker].append(row.step)
    return [lost for what, plan in plans for steps in by_worker.values() if (lost := _lost(what, plan, steps))]


def _lost(what: str, plan: pb.Plan, steps: Sequence[pb.StepTime]) -> Lost | None:
    """Return what one worker lost in one plan, or None: it was not there before and after."""
    before = [step.seconds for step in steps if step.end < plan.started][-BEFORE:]
    after = [step.seconds for step in steps if plan.clock + AFTER < step.version <= plan.clock + AFTER + BEFORE]
    if len(before) < BEFORE or len(after) < BEFORE:
        return None
    registered = plan.started + plan.steps_ms[0] / 1000
    starting = (step.seconds for step in steps if plan.started <= step.end < registered)
    until_clock = (step.seconds for step in steps if registered <= step.end and step.version <= plan.clock)
    beyond = (step.seconds for step in steps if plan.clock < step.version <= plan.clock + AFTER)
    return Lost(what, _above(until_clock, before) + _above(beyond, after), _above(starting, before))


def _above(seconds: Iterable[float], undisturbed: Sequence[float]) -> float:
    """Return the seconds that steps took above as many undisturbed ones."""
    usual = statistics.mean(undisturbed)
    return sum(each - usual for each in seconds)


def _rows(losses: Sequence[Lost]) -> list[dict[str, Any]]:
    groups: dict[str, list[Lost]] = defaultdict(list)
    for lost in losses:
        groups[lost.what].append(lost)
    rows = []
    for what, group in groups.items():
        seconds = [lost.seconds for lost in group]
        starting = [lost.starting for lost in group if lost.starting is not None]
        rows.append(
            {
                "what": what,
                "times": len(group),
                "median s": statistics.median(seconds),
                "least s": min(seconds),
                "most s": max(seconds),
                "beside starting processes s": statistics.median(starting) if starting else None,
            }
        )
    return rows


if __name__ == "__main__":
    as_program(main)
