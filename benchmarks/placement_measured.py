"""This benchmark says how well models of speeds predict measured placements of real jobs that they were not fitted to.

    python -m benchmarks.placement_measured [--table build/bench/interference.jsonl]

Five times a fifth of the placements of several jobs is left out; those of single jobs never are, as LIF needs them. On
unseen pairs: no two of the held out pair ever shared a node in what was fitted, and only jobs that do so count.
The error is the mean of |predicted - measured| / measured over jobs; `repeats` is what the median of a job's repeats
is off another repeat: no model can be much better.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.boosted_speed import BoostedSpeed
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement
from dl2_scheduler.cluster.hardware.measured_loads import AloneSpeeds, SlowedSpeed
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable, read_table
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.learning.placement.measured_fit import errors_of, fit_load, fit_measured, folds, samples_of
from dl2_scheduler.policies.learnt.pooled_speed import base_speeds
from dl2_scheduler.sim.placed.measured.shipped_table import SHIPPED_TABLE

FOLDS = 5
PAIRS = 5
"""Pairs of models that are held out, one after the other."""

OURS, BOOSTING, LINEAR, QUADRATIC, ALONE = "pooled (ours)", "boosting", "LIF-linear", "LIF-quadratic", "nothing"
_ROLES_TOGETHER = "unseen pairs"


def main() -> int:
    """Fit, test, print, write build/bench/placement_measured.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=Path(str(SHIPPED_TABLE)), help="default: the shipped one")
    table = read_table(parser.parse_args().table)
    rows = [_row("held out placements", name, errors) for name, errors in _held_out(table).items()]
    rows += [_row(_ROLES_TOGETHER, name, errors) for name, errors in _unseen_pairs(table).items()]
    rows.append(_row("held out placements", "repeats", _repeats(table)))
    return finish("placement_measured", rows, _goals(rows), ["numpy", "torch", "scikit-learn"])


Errors = dict[str, list[float]]
"""By the jobs' models."""


def _fits(rows: Sequence[MeasuredPlacement], table: MeasuredTable) -> Mapping[str, Callable[[], PlacedSpeed]]:
    samples, alone = samples_of(rows, table.models), AloneSpeeds(table.placements)
    return {
        OURS: lambda: fit_measured(rows, table.profiles, table.groups),
        BOOSTING: lambda: BoostedSpeed.fitted(samples, base_speeds(table.profiles)),
        LINEAR: lambda: SlowedSpeed(alone, table.models, fit_load(rows, table.profiles, False)),
        QUADRATIC: lambda: SlowedSpeed(alone, table.models, fit_load(rows, table.profiles, True)),
    }


def _held_out(table: MeasuredTable) -> Mapping[str, Errors]:
    found: dict[str, Errors] = {}
    for part in folds(table.placements, FOLDS):
        left_out = {row.key for row in part}
        _test(found, table, [row for row in table.placements if row.key not in left_out], part)
    return found


def _unseen_pairs(table: MeasuredTable) -> Mapping[str, Errors]:
    pairs = list(combinations(table.models, 2))
    drawn = np.random.default_rng(0).permutation(len(pairs))[:PAIRS]
    found: dict[str, Errors] = {}
    for pair in (pairs[index] for index in drawn):
        met = [row for row in table.placements if _meet(row, pair)]
        left_out = {row.key for row in met}
        only = [model for model in table.models if model in pair]
        _test(found, table, [row for row in table.placements if row.key not in left_out], met, only)
    return found


def _meet(row: MeasuredPlacement, pair: Sequence[str]) -> bool:
    """Return whether jobs of two models share a node."""
    one, other = (
        {node for job in row.jobs if job.model == model for node in (*job.workers, *job.servers)} for model in pair
    )
    return bool(one & other)


def _test(
    found: dict[str, Errors],
    table: MeasuredTable,
    fitted: Sequence[MeasuredPlacement],
    test: Sequence[MeasuredPlacement],
    models: Sequence[str] | None = None,
) -> None:
    """Add each model of speeds' errors at some placements to those that were found before.

    Args:
        found: is added to.
        table: all of it.
        fitted: the placements that they are fitted to.
        test: the others.
        models: whose jobs count; None: all.
    """
    for name, fit in _fits(fitted, table).items():
        of_name = found.setdefault(name, {})
        for model, errors in errors_of(fit(), test, table.models).items():
            if models is None or model in models:
                of_name.setdefault(model, []).extend(errors)


def _repeats(table: MeasuredTable) -> Errors:
    """Return how far one repeat of a job is off the median of the others."""
    found: Errors = {}
    for row in table.placements:
        for job in row.jobs if len(row.jobs) > 1 and len(row.jobs[0].speeds) > 1 else ():
            others = float(np.median(job.speeds[1:]))
            found.setdefault(job.model, []).append(abs(others - job.speeds[0]) / job.speeds[0])
    return found


def _row(what: str, name: str, errors: Errors) -> dict[str, Any]:
    whole = [error for each in errors.values() for error in each]
    row: dict[str, Any] = {"test": what, "by": name, "jobs": len(whole)}
    row["error %"] = round(100 * float(np.mean(whole)), 1)
    return row | {model: round(100 * float(np.mean(each)), 1) for model, each in sorted(errors.items())}


def _goals(rows: Sequence[Mapping[str, Any]]) -> list[BenchmarkGoal]:
    error = {(row["test"], row["by"]): row for row in rows}
    held_out = {name: error["held out placements", name] for name in (OURS, BOOSTING, LINEAR, QUADRATIC)}
    models = [key for key in held_out[OURS] if key not in ("test", "by", "jobs", "error %")]
    others = (BOOSTING, LINEAR, QUADRATIC)
    worst = max(held_out[OURS][model] / min(held_out[other][model] for other in others) for model in models)
    return [
        at_most("error of ours, held out placements", 10.0, held_out[OURS]["error %"], "%"),
        at_most("error of ours, unseen pairs", 15.0, error[_ROLES_TOGETHER, OURS]["error %"], "%"),
        at_most("error of ours over the best other's, worst model", 1.0, worst, "times"),
    ]


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
