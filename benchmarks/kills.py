"""Kill servers of protected jobs at random moments: what is lost, and how soon training goes on.

    python -m benchmarks.kills [--kills 200] [--freezes 12] [--seed 1] [--jobs 3 7] [--lanes 1] [--lease 3]

A job has two workers and two or three servers, is sync, async or ssp, by shared memory or tcp, and takes many strikes:
one when all has been protected again since the last. Every third comes while a plan adds a server or takes one away. No
job has a checkpoint. At its end the ledger's audit, and weights that are those of an undisturbed job to the bit (sync)
or that count every sample (`benchmarks.scripts.train_tally`), prove that no update was lost or doubled.

A pause is from the launcher's notice of the death until each worker has made two steps more. For a frozen server it is
from the moment when its silence had lasted for the bound of the detection, a lease and a half. The folder of a job that
fails is kept.
"""

import argparse
import queue
import random
import shutil
import signal
import statistics
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.killed_job import JobDraw, KilledOutcome, Strike, Struck, run
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish

FOLDER = Path("build/bench/kills")
LEASE = 10.0
_KINDS = tuple((mode, transport) for mode in ("sync", "async", "ssp") for transport in ("auto", "tcp"))
_OF_A_JOB = 12
_PLAN_EVERY = 3
_BOUND_LEASES = 1.5
_MEDIAN_SECONDS, _P99_SECONDS = 1.0, 3.0


def draws(kills: int, freezes: int, seed: int, lease: float) -> list[JobDraw]:
    """Return the jobs that take so many strikes, over all kinds of jobs alike.

    Args:
        kills: of them.
        freezes: of them.
        seed: of all that is drawn.
        lease: of the jobs.
    """
    chance = random.Random(seed)
    strikes = ["kill"] * kills + ["freeze"] * freezes
    chance.shuffle(strikes)
    count = max(1, -(-len(strikes) // _OF_A_JOB))
    found = []
    for number in range(count):
        own = strikes[number::count]
        chosen = tuple(Strike(each, "plan" if at % _PLAN_EVERY == 2 else "rest") for at, each in enumerate(own))
        mode, transport = _KINDS[number % len(_KINDS)]
        found.append(JobDraw(number, mode, transport, chance.choice((2, 3)), lease, chosen, f"{seed}-{number}"))
    return found


def pause(struck: Struck, lease: float) -> float:
    """Return the seconds until training went on, from when it could be noticed that it had stopped.

    Args:
        struck: what was done, and when.
        lease: of the job.
    """
    if struck.strike.signal == "kill":
        return struck.trained - struck.noticed
    return struck.trained - (struck.at + _BOUND_LEASES * lease)


def goals(outcomes: Sequence[KilledOutcome], strikes: int) -> list[BenchmarkGoal]:
    """Return what was promised, and what came of it.

    Args:
        outcomes: of all jobs.
        strikes: that were to be made.
    """
    struck = [(one, outcome.draw.lease) for outcome in outcomes for one in outcome.struck]
    failed = sum(bool(outcome.failure) for outcome in outcomes)
    found = [
        BenchmarkGoal("strikes made", f"all {strikes}", len(struck), len(struck) == strikes),
        at_most("jobs that failed", 0, failed, "jobs"),
        at_most("restores", 0, sum(outcome.restores for outcome in outcomes), "restores"),
        at_most("lost or doubled updates", 0, sum(len(outcome.problems) for outcome in outcomes), "problems"),
    ]
    for name in ("kill", "freeze"):
        pauses = [pause(one, lease) for one, lease in struck if one.strike.signal == name and one.trained]
        if pauses:
            found.append(at_most(f"{name}: pause, median", _MEDIAN_SECONDS, statistics.median(pauses), "s"))
            found.append(at_most(f"{name}: pause, 99th percentile", _P99_SECONDS, _p99(pauses), "s"))
    return found


def _p99(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.99, method="higher"))


def rows(outcomes: Sequence[KilledOutcome]) -> list[dict[str, Any]]:
    """Return a row for each kind of job and strike.

    Args:
        outcomes: of all jobs.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[Struck, float]]] = {}
    for outcome in outcomes:
        for one in outcome.struck:
            key = outcome.draw.mode, outcome.draw.transport, one.strike.signal, one.strike.during
            groups.setdefault(key, []).append((one, outcome.draw.lease))
    return [_row(key, some) for key, some in sorted(groups.items())]


def _row(key: tuple[str, str, str, str], some: Sequence[tuple[Struck, float]]) -> dict[str, Any]:
    pauses = [pause(one, lease) for one, lease in some if one.trained]
    protected = [one.whole - one.noticed for one, _ in some if one.whole]
    return {
        **dict(zip(("mode", "transport", "strike", "during"), key, strict=True)),
        "times": len(some),
        "pause s": statistics.median(pauses) if pauses else None,
        "p99 s": _p99(pauses) if pauses else None,
        "protected again s": statistics.median(protected) if protected else None,
    }


class JobQueue:
    """A `JobQueue` has the jobs that are still to run; some run at a time.

    Args:
        jobs: that are to run.
        seed: that they were drawn by.
    """

    def __init__(self, jobs: Sequence[JobDraw], seed: int):
        self.outcomes: list[KilledOutcome] = []
        self._count = len(jobs)
        self._seed = seed
        self._waiting: queue.SimpleQueue[JobDraw] = queue.SimpleQueue()
        for job in jobs:
            self._waiting.put(job)

    def run(self, lanes: int) -> None:
        """Run all; `lanes`: jobs at a time."""
        threads = [threading.Thread(target=self._run, daemon=True) for _ in range(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while True:
            try:
                draw = self._waiting.get_nowait()
            except queue.Empty:
                return
            folder = (FOLDER / f"job-{draw.number}").resolve()
            outcome = run(draw, folder)
            self.outcomes.append(outcome)
            self._tell(outcome, folder)

    def _tell(self, outcome: KilledOutcome, folder: Path) -> None:
        """Say what came of a job; its folder goes where all went well."""
        pauses = [pause(one, outcome.draw.lease) for one in outcome.struck if one.trained]
        middle = f", pause {statistics.median(pauses):.2f} s, at most {max(pauses):.2f} s" if pauses else ""
        done = f"{len(self.outcomes)}/{self._count} {outcome.draw}: {len(outcome.struck)} strikes{middle}"
        print(done, file=sys.stderr, flush=True)
        why = (
            outcome.failure or "; ".join(outcome.problems) or (f"{outcome.restores} restores" * bool(outcome.restores))
        )
        if not why:
            shutil.rmtree(folder)
            return
        (folder / "failure.txt").write_text(f"{outcome}\n\n{why}\n")
        print(f"    {why.splitlines()[0]}\n    kept: {folder}", file=sys.stderr)
        print(f"    again: the same command with --seed {self._seed} --jobs {outcome.draw.number}", file=sys.stderr)


def main() -> int:
    """Measure, print, write build/bench/kills.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="servers that are killed (default 200)")
    parser.add_argument("--freezes", type=int, default=12, help="servers that are frozen (default 12)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the victims (default 1)")
    parser.add_argument("--jobs", type=int, nargs="*", help="only these jobs of the draw")
    parser.add_argument("--lanes", type=int, default=1, help="jobs at a time (default 1)")
    parser.add_argument("--lease", type=float, default=LEASE, help="of the jobs, in seconds (default 10)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    shutil.rmtree(FOLDER, ignore_errors=True)
    chosen = [
        draw
        for draw in draws(arguments.kills, arguments.freezes, arguments.seed, arguments.lease)
        if arguments.jobs is None or draw.number in arguments.jobs
    ]
    lanes = JobQueue(chosen, arguments.seed)
    lanes.run(arguments.lanes)
    strikes = sum(len(draw.strikes) for draw in chosen)
    return finish("kills", rows(lanes.outcomes), goals(lanes.outcomes, strikes), packages=("grpcio", "numpy"))


if __name__ == "__main__":
    as_program(main)
