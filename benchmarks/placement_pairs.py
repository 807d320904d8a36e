"""This benchmark says how well models of speeds predict public measurements of two jobs that share one GPU.

    python -m benchmarks.placement_pairs --gavel simulation_throughputs.json [--gpus v100 p100] [--seeds 3]

The file is `scheduler/simulation_throughputs.json` of the repository stanford-futuredata/gavel (MIT licence), which is
not shipped here: steps a second of 26 configurations of jobs on three types of GPU, alone and beside one another. A
fifth of the pairs is held out, once for each seed; the error is the mean of |predicted - measured| / measured over
both jobs of each. The median of the seeds counts. Each model of speeds is told how fast jobs are alone.

Nobody measured which cores and traffic these jobs use, so that LIF's loads are fitted too: two numbers for each
configuration, in turn with the coefficients.
"""

import argparse
import json
import os
import sys
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.boosted_speed import BoostedSpeed
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed, PlacementArrays
from dl2_scheduler.learning.placement.measured_fit import errors_of, fit_measured, folds, samples_of, with_profiles
from dl2_scheduler.policies.learnt.pooled_speed import base_speeds

OURS, BOOSTING, LIF, NOTHING = "pooled (ours)", "boosting", "LIF with fitted loads", "the mean slowdown"
GPUS = "v100", "p100"
FOLDS = 5
_LOADS = 2
_ROUNDS = 60
_RIDGE = 1e-2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gavel", type=Path, required=True, metavar="FILE", help="simulation_throughputs.json")
    parser.add_argument("--gpus", nargs="+", default=list(GPUS))
    parser.add_argument("--seeds", type=int, default=3, help="each holds out other pairs")
    arguments = parser.parse_args()
    rows = []
    for gpu in arguments.gpus:
        measured = read_pairs(arguments.gavel, gpu)
        found = [_errors(measured, seed) for seed in range(arguments.seeds)]
        rows += [_row(gpu, name, [each[name] for each in found]) for name in found[0]]
    return finish("placement_pairs", rows, _goals(rows), ["numpy", "torch", "scikit-learn"])


def read_pairs(path: Path, gpu: str) -> list[MeasuredPlacement]:
    """Return the placements of a type of GPU: each job alone, then each pair that fits into its memory.

    Args:
        path: of Gavel's file.
        gpu: type, as the file calls it.

    Raises:
        SystemExit: it is another file, or has no such GPU.
    """
    try:
        speeds = json.loads(path.read_text())[gpu]
        names = {key: literal_eval(key)[0] for key in speeds if literal_eval(key)[1] == 1}
        alone = [MeasuredPlacement((_job(name, speeds[key]["null"]),)) for key, name in names.items()]
        pairs = [
            MeasuredPlacement((_job(name, both[0]), _job(names[other], both[1])))
            for key, name in names.items()
            for other, both in speeds[key].items()
            if other in names and key <= other and min(both) > 0
        ]
    except (OSError, ValueError, KeyError, TypeError, SyntaxError) as error:
        print(f"{path} is not Gavel's simulation_throughputs.json with {gpu}: {error!r}", file=sys.stderr)
        raise SystemExit(2) from error
    return alone + pairs


def _job(model: str, speed: float) -> MeasuredJob:
    return MeasuredJob(model, (0,), (0,), (speed,))


@dataclass(frozen=True)
class FittedLoads:
    """See `PlacedSpeed`: LIF's linear form in loads that are fitted as well; pairs of one worker and one server each.

    Attributes:
        alone: speed of each model, (models,).
        coefficients: of 1 and of each load, (models, 1 + loads).
        loads: that each model is for others, (models, loads).
    """

    alone: Floats
    coefficients: Floats
    loads: Floats

    @classmethod
    def fitted(cls, pairs: Sequence[MeasuredPlacement], models: Sequence[str], alone: Floats) -> "FittedLoads":
        """Fit both to slowdowns by least squares in turn, each with a small ridge.

        Args:
            pairs: measured.
            models: in the order of arrays' indices.
            alone: see the class.
        """
        index = {model: number for number, model in enumerate(models)}
        met = [(index[one.model], index[other.model], one.speed) for pair in pairs for one, other in _sides(pair)]
        who, beside = (np.array([each[side] for each in met]) for side in (0, 1))
        slowdown = alone[who] / np.array([speed for _, _, speed in met]) - 1
        rng = np.random.default_rng(0)
        loads = 1 + 0.1 * rng.standard_normal((len(models), _LOADS))
        coefficients = np.zeros((len(models), 1 + _LOADS))
        for _ in range(_ROUNDS):
            terms = np.column_stack([np.ones(len(met)), loads[beside]])
            coefficients = _each_fitted(len(models), who, terms, slowdown)
            loads = _each_fitted(len(models), beside, coefficients[who, 1:], slowdown - coefficients[who, 0])
        return cls(alone, coefficients, loads)

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        model = placements.model
        slowdown = self.coefficients[model, 0] + (self.coefficients[model, 1:] * self.loads[model[::-1]]).sum(axis=1)
        found: Floats = self.alone[model] / (1 + np.maximum(0, slowdown))
        return found


def _each_fitted(models: int, of: Ints, terms: Floats, value: Floats) -> Floats:
    """Return each model's least squares of its own rows.

    Args:
        models: how many.
        of: the model of each row, (rows,).
        terms: of each row, (rows, terms).
        value: wanted, (rows,).
    """
    width = terms.shape[1]
    found = np.zeros((models, width))
    for model in range(models):
        own = terms[of == model]
        found[model] = np.linalg.solve(own.T @ own + _RIDGE * np.eye(width), own.T @ value[of == model])
    return found


def _sides(pair: MeasuredPlacement) -> list[tuple[MeasuredJob, MeasuredJob]]:
    one, other = pair.jobs
    return [(one, other), (other, one)]


@dataclass(frozen=True)
class _MeanSlowdown:
    """See `PlacedSpeed`: each job is slowed down as jobs are in the mean."""

    alone: Floats
    factor: float

    def rates(self, placements: PlacementArrays) -> Floats:
        return self.alone[placements.model] * self.factor


def _errors(measured: Sequence[MeasuredPlacement], seed: int) -> Mapping[str, Floats]:
    """Return the errors of each model of speeds at the first of some parts of the pairs that it was not fitted to."""
    held_out = folds(measured, FOLDS, seed)[0]
    left_out = {row.key for row in held_out}
    fitted = [row for row in measured if row.key not in left_out]
    models = sorted({job.model for row in measured for job in row.jobs})
    found = {}
    for name, fit in _fits(fitted, models).items():
        errors = errors_of(fit(), held_out, models)
        found[name] = np.array([error for of_model in errors.values() for error in of_model])
    return found


def _fits(rows: Sequence[MeasuredPlacement], models: Sequence[str]) -> Mapping[str, Callable[[], PlacedSpeed]]:
    single = {row.jobs[0].model: row.jobs[0].speed for row in rows if len(row.jobs) == 1}
    alone = np.array([single[model] for model in models])
    pairs = [row for row in rows if len(row.jobs) > 1]
    profiles = with_profiles([row for row in rows if len(row.jobs) == 1], {})
    parts = [job.speed / single[job.model] for row in pairs for job in row.jobs]
    return {
        OURS: lambda: fit_measured(rows, profiles, 1),
        BOOSTING: lambda: BoostedSpeed.fitted(samples_of(rows, models), base_speeds(profiles)),
        LIF: lambda: FittedLoads.fitted(pairs, models, alone),
        NOTHING: lambda: _MeanSlowdown(alone, float(np.median(parts))),
    }


def _row(gpu: str, name: str, seeds: Sequence[Floats]) -> dict[str, Any]:
    means = [100 * float(errors.mean()) for errors in seeds]
    middle = 100 * float(np.median(np.concatenate(seeds)))
    error = {"error %": round(float(np.median(means)), 1), "of the seeds": " ".join(f"{each:.1f}" for each in means)}
    return {"gpu": gpu, "by": name, **error, "median job %": round(middle, 1)}


def _goals(rows: Sequence[Mapping[str, Any]]) -> list[BenchmarkGoal]:
    error = {(row["gpu"], row["by"]): row["error %"] for row in rows}
    return [
        at_most(f"{gpu}: error of ours over that of {other}", 1.0, error[gpu, OURS] / error[gpu, other], "times")
        for gpu in dict.fromkeys(row["gpu"] for row in rows)
        for other in (LIF, BOOSTING)
    ]


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
