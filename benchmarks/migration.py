"""Measure what workers lose when servers join: `live`, `pause`, or by a checkpoint and a restart (DL2 figures 11, 12).

    python -m benchmarks.migration [--models resnet50 vgg16] [--pairs 200]

Suspension is clock reached to resumed. Excess is the sum over the 5 steps from the clock of step time above the median
of the 20 steps before, less the same figure at random steps without a plan (the machine's own noise). As the steps
before the clock bear the followers already, the same sum above the 20 steps before the *plan* stands beside it. Workers
only exchange: no computation hides anything.
"""

import argparse
import random
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.models import MODELS
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, finish, under
from coordinator.archive import Archive
from dl2_scheduler.backends.trial import Trial, restarted
from protos import elastic_pb2 as pb

FOLDER = Path("build/bench/migration")
WORKERS = 2
JOINING = (1, 2, 4)
BEFORE, AFTER = 20, 5
OPTIONS = ("--seed", "1")
QUIET_EVERY = 8
"""Rounds after which nothing happens for a while, to see the machine's own noise."""

PAUSE_ROUNDS = 3
"""Plans in pause mode, and restarts, for each number of joining servers: enough to see tens of milliseconds."""

Series = Mapping[int, pb.StepTime]
"""One worker's steps, by the version that each led to."""


@dataclass(frozen=True)
class WorkerTimeLost:
    """This says what one worker lost in one plan; milliseconds."""

    model: str
    mode: str
    joined: int
    suspension: float
    excess: float
    whole: float  # excess over the steps before the plan


def measure(model: str, pairs: int) -> tuple[list[WorkerTimeLost], dict[int, list[float]]]:
    """Play plans of one model; returns the workers' losses and, for `live`, what `_syncing` tells."""
    rounds = -(-pairs // (WORKERS * len(JOINING)))
    plans: list[tuple[int, pb.Plan]] = []
    with Trial(FOLDER, model, ["benchmarks.scripts.train_shapes", model], WORKERS, 1, OPTIONS) as job:
        for number in range(rounds):
            if number % QUIET_EVERY == 0:
                job.until(job.version() + 3 * BEFORE)
            for joining in JOINING:
                modes = [pb.LIVE, pb.PAUSE] if number < PAUSE_ROUNDS else [pb.LIVE]
                for mode in modes:
                    plans.append((joining, job.scale(1 + joining, mode)))
                    job.until(plans[-1][1].clock + AFTER + 2)
                    back = job.scale(1, pb.PAUSE)  # only to get back, so as fast as it goes
                    job.until(back.clock + BEFORE + 2)
            print(f"{model}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        archive = job.stop()
    assert archive is not None, "the job has run"
    return _losses(model, archive, plans), _syncing(archive, [plan for _, plan in plans if plan.mode == pb.LIVE])


def _series(archive: Archive) -> dict[str, Series]:
    series: dict[str, dict[int, pb.StepTime]] = defaultdict(dict)
    for row in archive.steps:
        series[row.worker][row.step.version] = row.step
    return dict(series)


def _seconds(steps: Series, versions: Iterable[int]) -> list[float] | None:
    """Return the seconds of these steps, or None where one is missing."""
    found = [steps[version].seconds for version in versions if version in steps]
    return found if len(found) == len(list(versions)) else None


def _above(steps: Series, clock: int, before: list[float] | None = None) -> float | None:
    """Return the milliseconds that the steps from `clock` took above the median of those `before`.

    None: some of them are missing.
    """
    before = before or _seconds(steps, range(clock - BEFORE + 1, clock + 1))
    after = _seconds(steps, range(clock + 1, clock + AFTER + 1))
    if not before or after is None or len(before) != BEFORE:
        return None
    usual = statistics.median(before)
    return sum(seconds - usual for seconds in after) * 1000


def _losses(model: str, archive: Archive, plans: Sequence[tuple[int, pb.Plan]]) -> list[WorkerTimeLost]:
    series = _series(archive)
    busy = [plan.clock for plan in archive.plans if plan.clock]
    quiet = {worker: _quiet(steps, busy) for worker, steps in series.items()}
    choose = random.Random(1)
    losses = []
    for joined, plan in plans:
        for worker, suspension in plan.suspension_ms.items():
            above = _above(series[worker], plan.clock)
            whole = _above(series[worker], plan.clock, _before(series[worker], plan))
            if above is not None and whole is not None and quiet[worker]:
                mode = "live" if plan.mode == pb.LIVE else "pause"
                noise = choose.choice(quiet[worker])
                losses.append(WorkerTimeLost(model, mode, joined, suspension, above - noise, whole - noise))
    return losses


def _before(steps: Series, plan: pb.Plan) -> list[float]:
    """Return the seconds of the last steps before a plan began."""
    return [steps[version].seconds for version in sorted(steps) if steps[version].end < plan.started][-BEFORE:]


def _quiet(steps: Series, busy: Sequence[int]) -> list[float]:
    """Return the same figure where no plan is near: the machine's own noise."""
    free = [v for v in steps if all(v + AFTER < clock - BEFORE or v - BEFORE > clock + AFTER for clock in busy)]
    return [above for version in free if (above := _above(steps, version)) is not None]


def _syncing(archive: Archive, plans: Sequence[pb.Plan]) -> dict[int, list[float]]:
    """Return the median step time while followers catch up, over that of the 20 steps before; by servers joining."""
    ratios: dict[int, list[float]] = defaultdict(list)
    series = _series(archive)
    for plan in plans:
        started = plan.started + (plan.steps_ms[0] + plan.steps_ms[1]) / 1000
        ended = started + plan.steps_ms[2] / 1000
        for steps in series.values():
            before = _before(steps, plan)
            during = [step.seconds for step in steps.values() if started < step.end and step.end - step.seconds < ended]
            if len(before) == BEFORE and during:
                ratios[len(plan.joined)].append(statistics.median(during) / statistics.median(before))
    return dict(ratios)


def _restarts(model: str, joining: int) -> list[float]:
    """Measure restarts, in milliseconds each."""
    worker = ["benchmarks.scripts.train_shapes", model]
    return [
        1000 * restarted(FOLDER, f"{model}-restart-{joining}-{number}", worker, WORKERS, (1, 1 + joining), OPTIONS)
        for number in range(PAUSE_ROUNDS)
    ]


def _row(
    model: str, how: str, joined: int, losses: Sequence[WorkerTimeLost], ratios: Sequence[float] = ()
) -> dict[str, Any]:
    suspension = np.array([loss.suspension for loss in losses])
    return {
        "model": model,
        "how": how,
        "servers joining": joined,
        "pairs": len(losses),
        "suspension ms median": float(np.median(suspension)),
        "suspension ms p99": float(np.percentile(suspension, 99)),
        "excess ms median": statistics.median(loss.excess for loss in losses),
        "above the plan's start ms": statistics.median(loss.whole for loss in losses),
        "step while syncing": statistics.median(ratios) if ratios else None,
    }


def _rows(model: str, losses: Sequence[WorkerTimeLost], ratios: Mapping[int, Sequence[float]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, int], list[WorkerTimeLost]] = defaultdict(list)
    for loss in losses:
        groups[loss.mode, loss.joined].append(loss)
    rows = [
        _row(model, mode, joined, group, ratios.get(joined, ()) if mode == "live" else ())
        for (mode, joined), group in sorted(groups.items())
    ]
    for joined in JOINING:
        lost = [WorkerTimeLost(model, "restart", joined, ms, ms, ms) for ms in _restarts(model, joined)]
        rows.append(_row(model, "checkpoint and restart", joined, lost))
    return rows


def _goals(
    model: str, losses: Sequence[WorkerTimeLost], ratios: Mapping[int, Sequence[float]], pairs: int
) -> list[BenchmarkGoal]:
    live = [loss for loss in losses if loss.mode == "live"]
    suspension = float(np.percentile([loss.suspension for loss in live], 99))
    excess = statistics.median(loss.excess for loss in live)
    return [
        at_least(f"{model}: live (plan, worker) pairs", pairs, len(live), "pairs"),
        under(f"{model}: live suspension, 99th percentile", 10, suspension, "ms"),
        under(f"{model}: live excess, median", 10, excess, "ms"),
        *(
            under(f"{model}: step time while {joined} join, over before, median", 1.5, statistics.median(some), "times")
            for joined, some in sorted(ratios.items())
        ),
    ]


def main() -> int:
    """Measure, print, write build/bench/migration.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["resnet50", "vgg16"])
    parser.add_argument("--pairs", type=int, default=200, help="(plan, worker) pairs for each model (default 200)")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    for model in options.models:
        losses, ratios = measure(model, options.pairs)
        rows += _rows(model, losses, ratios)
        goals += _goals(model, losses, ratios, options.pairs)
    return finish("migration", rows, goals, packages=("numpy", "grpcio"))


if __name__ == "__main__":
    as_program(main)
