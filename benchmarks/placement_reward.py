"""This benchmark says how well models of speeds predict a cluster full of jobs, by the samples they were fitted to.

    python -m benchmarks.placement_reward [--most 13177]

Harmony's six models on its six servers, in the mechanistic world; 3% of noise on all that is measured. The error is the
mean of |predicted - measured| / measured over all jobs of 1,500 other samples. LIF is told each job's true
speed alone at its places, the others nothing but samples. On unseen pairs: no two of the held out models ever shared
a server in the samples; only jobs that do so in the test count.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.support.boosted_speed import BoostedSpeed
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.placements import Interference, PlacedSpeed, PlacementArrays
from dl2_scheduler.figures.placement.contenders import fitted_interference
from dl2_scheduler.learning.placement.harmony.flattened_speed import MOST_JOBS, fit_flattened
from dl2_scheduler.learning.placement.reward_model import FitSettings, fit_pooled
from dl2_scheduler.policies.learnt.pooled_speed import base_speeds
from dl2_scheduler.sim.placed.samples import PlacedSamples, draw_samples
from dl2_scheduler.sim.placed.scenario import Scenario

COUNTS = (300, 1000, 3000, 13_177)
TESTED = 1500
UNSEEN = (("ctc", "resnext-110"), ("seq2seq", "vgg-16"), ("resnet-50", "wlm"))
"""Pairs of models that are held out: one that interferes much, one of the middle, and the mildest."""

OURS, PAPER, BOOSTING = "pooled (ours)", "Harmony's", "boosting"


@dataclass(frozen=True)
class LifSpeed:
    """See `PlacedSpeed`: each job's true speed alone at its places, divided by LIF's slowdown of its worst task."""

    world: PlacedSpeed
    interference: Interference

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        worst = np.zeros(len(placements.model))
        np.maximum.at(worst, placements.job, self.interference.slowdown(placements))
        jobs = range(len(placements.model))
        alone = [self.world.rates(placements.of_tasks(placements.job == job))[job] for job in jobs]
        return np.array(alone) / (1 + worst)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=COUNTS[-1], help="samples to fit to")
    most = parser.parse_args().most
    scenario = Scenario.harmony(3.0)
    samples = draw_samples(scenario.machines, scenario.profiles, scenario.world, most + TESTED, 0)
    test = _small(samples.part(np.arange(most, most + TESTED)))
    rows: list[dict[str, Any]] = []
    for count in (each for each in COUNTS if each <= most):
        rows += _fit_and_test(scenario, samples.part(np.arange(count)), test, f"{count:,} samples")
    rows += _unseen(scenario, most)
    return finish("placement_reward", rows, _goals(rows), ["numpy", "torch", "scikit-learn"])


def _small(samples: PlacedSamples) -> PlacedSamples:
    """Leave out samples that Harmony's model has no rows for."""
    return samples.part(np.flatnonzero([len(each.model) <= MOST_JOBS for each in samples.clusters]))


def _fits(scenario: Scenario, samples: PlacedSamples) -> Mapping[str, Callable[[], PlacedSpeed]]:
    where = samples, scenario.profiles, len(scenario.machines.sockets)
    epochs = max(30, 60 * COUNTS[2] // len(samples))  # few samples need more passes
    return {
        OURS: lambda: fit_pooled(*where, FitSettings(epochs=epochs)),
        PAPER: lambda: fit_flattened(*where),
        BOOSTING: lambda: BoostedSpeed.fitted(samples, base_speeds(scenario.profiles)),
        "LIF-linear": lambda: LifSpeed(scenario.world, fitted_interference(scenario, False)),
        "LIF-quadratic": lambda: LifSpeed(scenario.world, fitted_interference(scenario, True)),
    }


def _fit_and_test(
    scenario: Scenario,
    samples: PlacedSamples,
    test: PlacedSamples,
    what: str,
    counted: Callable[[PlacementArrays], Any] = lambda cluster: np.ones(len(cluster.model), dtype=bool),
) -> list[dict[str, Any]]:
    names, rows = sorted(scenario.profiles), []
    for name, fit in _fits(scenario, samples).items():
        speeds = fit()
        errors: dict[str, list[float]] = {model: [] for model in names}
        for cluster, rates in zip(test.clusters, test.rates, strict=True):
            wrong = np.abs(speeds.rates(cluster) - rates) / rates
            for job in np.flatnonzero(counted(cluster)):
                errors[names[cluster.model[job]]].append(float(wrong[job]))
        whole = [error for each in errors.values() for error in each]
        row = {"fitted to": what, "by": name, "error %": round(100 * float(np.mean(whole)), 2)}
        rows.append(row | {model: round(100 * float(np.mean(each)), 1) for model, each in errors.items() if each})
        print(row)
    return rows


def _unseen(scenario: Scenario, most: int) -> list[dict[str, Any]]:
    """Fit to samples in which no held out pair shares a server, and test on the jobs that do."""
    names = sorted(scenario.profiles)
    pairs = [tuple(names.index(model) for model in pair) for pair in UNSEEN]

    def meets(cluster: PlacementArrays) -> Any:
        """Return which jobs share a server with their model's held out partner, (jobs,)."""
        here = np.zeros((len(scenario.machines.sockets), len(names)), dtype=bool)
        here[cluster.group, cluster.model[cluster.job]] = True
        partner = dict(pairs) | {b: a for a, b in pairs}
        found = np.zeros(len(cluster.model), dtype=bool)
        for job, group in zip(cluster.job, cluster.group, strict=True):
            found[job] |= here[group, partner[cluster.model[job]]]
        return found

    samples = draw_samples(scenario.machines, scenario.profiles, scenario.world, 3 * most, 1)
    met = np.array([meets(each).any() for each in samples.clusters])
    fitted = samples.part(np.flatnonzero(~met)[:most])
    test = _small(samples.part(np.flatnonzero(met)[:TESTED]))
    return _fit_and_test(scenario, fitted, test, f"{len(fitted):,}, unseen pairs", meets)


def _goals(rows: list[dict[str, Any]]) -> list[BenchmarkGoal]:
    by = {(row["fitted to"], row["by"]): row for row in rows}
    goals = []
    for what, limit in ((f"{COUNTS[-1]:,} samples", 7.0), (f"{COUNTS[2]:,} samples", 10.0)):
        if (what, OURS) in by:
            goals.append(at_most(f"error of ours, {what}", limit, by[what, OURS]["error %"], "%"))
    unseen = rows[-1]["fitted to"]
    goals.append(at_most(f"error of ours, {unseen}", 15.0, by[unseen, OURS]["error %"], "%"))
    last = rows[-6]["fitted to"]
    others = (BOOSTING, "LIF-linear", "LIF-quadratic")
    models = [key for key in by[last, OURS] if key not in ("fitted to", "by", "error %")]
    worst = max(by[last, OURS][model] / min(by[last, other][model] for other in others) for model in models)
    goals.append(at_most("error of ours over the best other's, worst model", 1.0, worst, "times"))
    return goals


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
