"""Seeded faults in real jobs, each with the time until its job trained again.

    python -m tests.chaos [--seed 1] [--faults 100] [--lanes 2] [--mode all-reduce] [--only worker-server/ARMED/cut]

Writes build/chaos/summary.json, and keeps the folder of each job that failed. Exit status 1 where a fault was not
recovered from, could not be made, or where a job could not prove what it trained on. All that it starts dies with it.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from benchmarks.support.report import BenchmarkGoal, machine
from tests.chaos import network
from tests.chaos.draw import ALL_REDUCE, Fault, JobDraw, draw
from tests.chaos.run import Run
from tests.chaos.table import GOOD, TIMES, failures, summary, table, times

FOLDER = Path("build/chaos")


def _goals(run: Run, count: int) -> list[BenchmarkGoal]:
    results = list(run.results.values())
    good = sum(result.outcome == GOOD for result in results)
    proved = sum(run.jobs)
    return [
        BenchmarkGoal("faults that the job came back from", f"all {count}", good, good == count),
        BenchmarkGoal(
            "jobs that ended with their proof and weights", f"all {len(run.jobs)}", proved, proved == len(run.jobs)
        ),
    ]


def _only(draws: Sequence[JobDraw], cell: str) -> list[JobDraw]:
    """Those faults alone whose ROLE/PHASE/KIND has this in it."""

    def fits(fault: Fault) -> bool:
        return cell in f"{fault.cell.role}/{fault.cell.phase}/{fault.cell.kind}"

    kept = [replace(job, faults=tuple(filter(fits, job.faults))) for job in draws]
    return [job for job in kept if job.faults]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--lanes", type=int, default=2, help="jobs at a time (default 2)")
    parser.add_argument(
        "--mode", choices=("servers", ALL_REDUCE), default="servers", help="jobs with servers (default), or without"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults whose ROLE/PHASE/KIND has TEXT in it")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    refusal = network.refusal()
    if refusal:
        print(f"chaos: NOT MADE: faults of the network. {refusal}", file=sys.stderr, flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    draws = _only(draw(arguments.seed, arguments.faults, not refusal, arguments.mode == ALL_REDUCE), arguments.only)
    count = sum(len(job.faults) for job in draws)
    began = time.monotonic()
    run = Run(draws, FOLDER, arguments.lanes, room=not refusal)
    try:
        run.run()
    finally:  # what has been made counts, though the run is ended
        results, goals = list(run.results.values()), _goals(run, count)
        seconds = round(time.monotonic() - began)
        document = {"seed": arguments.seed, "seconds": seconds, "refused": refusal, "machine": machine()}
        document |= summary(results, [asdict(goal) for goal in goals])
        (FOLDER / "summary.json").write_text(json.dumps(document, indent=2) + "\n")
    console = Console(width=None if sys.stdout.isatty() else 180, markup=False, highlight=False)
    console.print(table(results))
    console.print(
        "each field: faults (that the job came back from / of how many): seconds until it trained, median and most"
    )
    for which in TIMES:
        console.print(f"{which}: {times(results, which)}")
    for line in failures(results):
        console.print(line)
    for goal in goals:
        console.print(f"{'met   ' if goal.met else 'MISSED'}  {goal.name}: {goal.value:g} (goal: {goal.goal})")
    console.print(f"{seconds} s; written to {FOLDER / 'summary.json'}; folders of failed jobs beside it")
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
