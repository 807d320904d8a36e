"""Policies on clusters of both kinds of jobs: with parameter servers, and without, whose workers all-reduce.

    python -m benchmarks.mixed_jobs [--policies drf,planner,dl2:RUN] [--parts 0,0.5,1] [--sequences 5] [--jobs 30]

Names are those of `dl2 evaluate`; the first policy is the baseline of the differences. All parts have the same jobs at
the same times, from seeds that no lesson has; a part of them, drawn job by job, has no servers. Speeds are the shipped
ones: without servers a job is as fast as with as many servers as workers (`sim.shipped`), and saves what these take.
Numbers are mean completion times in slots over the sequences, ± half the 95% interval; with scaling free, unless
`--measured-cost` is given.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.support.report import BenchmarkGoal, as_program, at_least, finish
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.policies.registry import make_policy, rule_of
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.bound import lp_bound
from dl2_scheduler.sim.evaluate import Contender, Setting
from dl2_scheduler.sim.lanes import MEASURED, NO_COST
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.record import record
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster
from dl2_scheduler.sim.trace import parse_cluster

FIRST_SEED = 7 << 29  # above all that `Lessons` draws, to learn from and to judge by, and below 2^32
LEAST_GAIN = 20.0
"""Percent by which the planner, which fits its speeds, is faster than DRF where half of the jobs have no servers."""


def main() -> int:
    """Measure, print, write build/bench/mixed_jobs.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="drf,planner", help="joined by commas (default drf,planner)")
    parser.add_argument("--parts", default="0,0.5,1", help="parts of the jobs without servers (default 0,0.5,1)")
    parser.add_argument("--sequences", type=int, default=5, help="of each part (default 5)")
    parser.add_argument("--jobs", type=int, default=30, help="of a sequence (default 30)")
    parser.add_argument("--cluster", default="24x8cpu,8gpu", help="nodes (default 24x8cpu,8gpu)")
    parser.add_argument("--measured-cost", action="store_true", help="scaling costs what our runtime needs for it")
    arguments = parser.parse_args()
    speeds = shipped_speeds(17, 17)
    try:
        cost = MEASURED if arguments.measured_cost else NO_COST
        setting = Setting(parse_cluster(arguments.cluster), speeds, cost=cost)
        contenders = [
            Contender(name, partial(make_policy, name, speeds), rule_of(name)) for name in arguments.policies.split(",")
        ]
        for contender in contenders:
            contender.make()  # an unknown name is told before anything runs
        parts = [float(part) for part in arguments.parts.split(",")]
        sequences = {
            part: [
                generate(Pattern.GOOGLE, arguments.jobs, FIRST_SEED + number, without_servers=part)
                for number in range(arguments.sequences)
            ]
            for part in parts
        }
    except (BadInput, ValueError) as error:
        parser.error(str(error))
    rows = [row for part in parts for row in _rows(part, setting, contenders, sequences[part])]
    return finish("mixed_jobs", rows, list(_goals(rows)), ["numpy", "scipy", "numba"])


def _rows(
    part: float, setting: Setting, contenders: Sequence[Contender], sequences: Sequence[Sequence[Job]]
) -> Iterator[dict[str, Any]]:
    """Yield a row of the bound, and of each policy, at one part of jobs without servers."""
    least = [lp_bound(jobs, setting.nodes, setting.speeds, setting.slot_seconds) for jobs in sequences]
    first: list[float] = []
    for contender in contenders:
        runs = [_run(contender, setting, jobs) for jobs in sequences]
        times = [float(np.mean([*run[True], *run[False]])) for run in runs]
        first = first or times
        difference = estimate([one - other for one, other in zip(times, first, strict=True)])
        yield {
            "without servers": part,
            "policy": contender.name,
            "slots": (mean := estimate(times)).mean,
            "±": mean.margin,
            f"vs {contenders[0].name} %": 100 * (mean.mean / float(np.mean(first)) - 1),
            "± of it, slots": difference.margin,
            "over the LP bound %": 100 * (mean.mean / float(np.mean(least)) - 1),
            "of jobs with servers": _mean(runs, has_servers=True),
            "of those without": _mean(runs, has_servers=False),
        }


def _run(contender: Contender, setting: Setting, jobs: Sequence[Job]) -> dict[bool, list[float]]:
    """Return the completion times in slots, of the jobs that have servers (True) and of those that have none."""
    where = setting.nodes, setting.speeds, setting.slot_seconds, setting.cost
    told = record(SimulatedCluster(jobs, *where), contender.make(), contender.rule)
    times = (told.finish - told.arrival).tolist()
    return {
        kind: [time for job, time in zip(told.jobs, times, strict=True) if job.has_servers is kind]
        for kind in (True, False)
    }


def _mean(runs: Sequence[Mapping[bool, Sequence[float]]], has_servers: bool) -> float | None:
    times = [time for run in runs for time in run[has_servers]]
    return float(np.mean(times)) if times else None


def _goals(rows: Sequence[Mapping[str, Any]]) -> Iterator[BenchmarkGoal]:
    """Yield what has to hold: nothing is below the bound, and the planner gains where kinds are mixed."""
    nearest = min(row["over the LP bound %"] for row in rows)
    yield at_least("the nearest to the bound is above it by", 0.0, nearest, "%")
    slots = {(row["without servers"], row["policy"]): row["slots"] for row in rows}
    for part in sorted({part for part, _ in slots if 0 < part < 1}):
        if (part, "drf") in slots and (part, "planner") in slots:
            gain = 100 * (1 - slots[part, "planner"] / slots[part, "drf"])
            yield at_least(f"the planner beside DRF, {part:g} without servers", LEAST_GAIN, gain, "% less")


if __name__ == "__main__":
    as_program(main)
