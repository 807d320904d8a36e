"""Judged by others: our choice of GPU types and counts in the simulator of Sia's authors (SOSP 2023), beside Sia.

    python -m benchmarks.sia --simulator PATH [--python build/sia-env/bin/python] [--traces philly saturn newtrace]
                             [--workloads 3] [--jobs 0] [--lanes 1] [--minutes 120]

PATH is the folder sia-simulator of a checkout of github.com/siasosp23/artifacts. That has no licence: nothing of it is
here, whoever runs this fetches it. It needs an interpreter of its own, with older packages (docs/reference/sia.md).

Workloads are the authors' own, from number 1 on; those that ours was tuned on are left out. Each is played by Sia, by
Gavel, by a choice that learns how long jobs of a model are, and by Sia with the same estimates of lengths; and by Sia
and ours with restarts of one second, as they are where jobs scale without checkpoints. A run takes half a minute to
several minutes of a core. Results are kept in build/bench/sia/, so that a call goes on where the last one was stopped.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.sia_simulator.runs import CannotRun, Run, Simulator
from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_least, at_most, finish

TRACES = {"philly": "Philly", "saturn": "Helios", "newtrace": "newTrace"}
"""What the paper calls the folders of workloads."""
SIA, GAVEL, SIA_WITH_LENGTHS, OURS = "sia", "gavel", "length-aware-sia", "length-aware"
PUBLISHED = {
    "philly": {SIA: 0.6, GAVEL: 1.9},
    "saturn": {SIA: 0.7, GAVEL: 2.5},
    "newtrace": {SIA: 0.7, GAVEL: 11.3},
}
"""Mean hours of a job in the paper's table 3."""
TUNED_ON = {"philly": (7, 8), "saturn": (9,)}
"""Workloads that ours is not judged on."""
OUR_RESTART = 1.0  # seconds
LESS = {None: 0.10, OUR_RESTART: 0.25}
"""What part of Sia's mean completion time ours has to save, by the restart."""
OFF_PUBLISHED = 0.25
Results = Mapping[Run, Mapping[str, Any]]


def main() -> int:
    """Run what is not kept yet, print, write build/bench/sia.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulator", type=Path, required=True, metavar="PATH", help="the artifact's sia-simulator")
    parser.add_argument("--python", type=Path, default=Path("build/sia-env/bin/python"), help="the simulator's own")
    parser.add_argument("--traces", nargs="+", choices=list(TRACES), default=list(TRACES))
    parser.add_argument("--workloads", type=_count, default=3, help="of each trace, from number 1 on (default 3)")
    parser.add_argument("--jobs", type=int, default=0, help="only the first of each workload; 0 for all, the default")
    parser.add_argument("--lanes", type=_count, default=1, help="runs at the same time, a core each (default 1)")
    parser.add_argument("--minutes", type=_count, default=120, help="that a run may take (default 120)")
    arguments = parser.parse_args()
    if arguments.jobs < 0:
        parser.error(f"--jobs {arguments.jobs}: 0 is for all jobs, or give a number above it")
    simulator = Simulator(_inner(arguments.simulator), arguments.python, FOLDER / "sia", 60.0 * arguments.minutes)
    runs = list(runs_of(arguments.traces, arguments.workloads, arguments.jobs))
    try:
        simulator.check(runs)
    except CannotRun as error:
        parser.error(str(error))
    results = simulator.results(runs, arguments.lanes)
    rows = [row for trace in arguments.traces for row in _rows(results, trace)]
    status = finish("sia", rows, list(_goals(results, arguments.traces)))
    return status if len(results) == len(runs) else 1


def runs_of(traces: Sequence[str], workloads: int, jobs: int) -> Iterator[Run]:
    """Yield the runs, those of a workload together: so that pairs are there early.

    Args:
        traces: folders of workloads.
        workloads: of each, from number 1 on.
        jobs: of each workload, 0 for all.
    """
    for number, trace in product(range(1, workloads + 1), traces):
        if number in TUNED_ON.get(trace, ()):
            continue
        for policy, restart in product((SIA, OURS), LESS):
            yield Run(trace, number, policy, restart, jobs)
        for policy in (GAVEL, SIA_WITH_LENGTHS):
            yield Run(trace, number, policy, None, jobs)


def _rows(results: Results, trace: str) -> Iterator[dict[str, Any]]:
    for restart, policy in product(LESS, (SIA, GAVEL, SIA_WITH_LENGTHS, OURS)):
        some = [
            result
            for run, result in results.items()
            if (run.trace, run.policy, run.restart) == (trace, policy, restart)
        ]
        if some:
            jobs = [seconds for result in some for seconds in result["completion_seconds"].values()]
            yield {
                "workloads of": TRACES[trace],
                "restarts": "theirs" if restart is None else f"{restart:g} s",
                "policy": policy,
                "runs": len(some),
                "mean h": mean_seconds(some) / 3600,
                "published": PUBLISHED[trace].get(policy) if restart is None else None,
                "p99 h": p99_seconds(some) / 3600,
                "makespan h": mean(result["makespan"] for result in some) / 3600,
                "restarts a job": sum(sum(result["restarts"].values()) for result in some) / len(jobs),
                "core s a run": mean(result["core_seconds"] for result in some),
            }


def _goals(results: Results, traces: Sequence[str]) -> Iterator[BenchmarkGoal]:
    """Yield the goals of workloads that both policies have ended; nothing is promised of parts of workloads' tables."""
    for trace in traces:
        for policy, published in PUBLISHED[trace].items():
            some = [
                result
                for run, result in results.items()
                if (run.trace, run.policy, run.restart, run.jobs) == (trace, policy, None, 0)
            ]
            if some:
                off = abs(mean_seconds(some) / 3600 / published - 1)
                yield at_most(
                    f"{TRACES[trace]}: {policy} beside its published {published:g} h", OFF_PUBLISHED, off, "of it off"
                )
        for restart, least in LESS.items():
            sias, ours = pairs(results, trace, restart)
            if not ours:
                continue
            name = f"{TRACES[trace]}, restarts {'theirs' if restart is None else f'{restart:g} s'}: ours against Sia,"
            yield at_least(f"{name} mean of {len(ours)}", least, 1 - mean_seconds(ours) / mean_seconds(sias), "less")
            yield at_most(f"{name} p99", 1.0, p99_seconds(ours) / p99_seconds(sias), "of Sia's")
            spans = mean(each["makespan"] for each in ours) / mean(each["makespan"] for each in sias)
            yield at_most(f"{name} makespan", 1.0, spans, "of Sia's")


def pairs(
    results: Results, trace: str, restart: float | None
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return Sia's and our results on the workloads that both have ended.

    Args:
        results: of all runs.
        trace: folder of workloads.
        restart: of the runs, in seconds, None for the simulator's own.
    """
    by_workload: dict[int, dict[str, Mapping[str, Any]]] = {}
    for run, result in results.items():
        if (run.trace, run.restart) == (trace, restart):
            by_workload.setdefault(run.number, {})[run.policy] = result
    both = [found for found in by_workload.values() if SIA in found and OURS in found]
    return [found[SIA] for found in both], [found[OURS] for found in both]


def mean_seconds(results: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean completion time, each workload counting alike."""
    return mean(mean(result["completion_seconds"].values()) for result in results)


def p99_seconds(results: Sequence[Mapping[str, Any]]) -> float:
    """Return the completion time that 99% of all jobs keep below, counted as the authors count it."""
    seconds = sorted(each for result in results for each in result["completion_seconds"].values())
    return float(seconds[int(0.99 * len(seconds))])


def _inner(path: Path) -> Path:
    """Return the simulator's folder, also where the whole checkout was given."""
    return path / "sia-simulator" if (path / "sia-simulator").is_dir() else path


def _count(text: str) -> int:
    """Return a number of 1 or more, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


if __name__ == "__main__":
    as_program(main)
