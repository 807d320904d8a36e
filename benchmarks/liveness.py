"""Measure how soon a job trains again where a process is silent for ever, or two cannot reach each other.

    python -m benchmarks.liveness [--times 3] [--lanes 2] [--lease 10]

Two workers and two servers, a checkpoint every few seconds; each fault as `make chaos` makes it
(docs/reference/faults.md), and each job proves at its end that every sample was used exactly once, and ends with the
weights of an undisturbed one. Links are cut where iptables and network namespaces can be had, as root; else the
benchmark refuses to run.
"""

import argparse
import shutil
import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish
from tests.chaos import network
from tests.chaos.cells import Cell
from tests.chaos.draw import Fault, JobDraw
from tests.chaos.result import Result
from tests.chaos.run import Run
from tests.chaos.table import GOOD
from tests.world.faults.cells import DROP, FREEZE, MOVERS, MOVING, PLAN_PHASES, RESET, REST, SERVER, WORKER

FOLDER = Path("build/bench/liveness")
LEASE = 10.0
_EXCHANGE = "worker-server"
_FAULTS_OF_A_JOB = 4
_THAWED_LEASES = 3.0


@dataclass(frozen=True)
class Promise:
    """One goal, and the faults by which it is tried.

    Attributes:
        name: what it is about.
        seconds: that it may take.
        which: the time of a `Result` that it is about.
        faults: each once, not yet numbered.
    """

    name: str
    seconds: float
    which: str
    faults: tuple[Fault, ...]


def _fault(role: str, phase: str, kind: str, joiner: bool = False, leases: float = 0.0, way: str = "") -> Fault:
    return Fault(0, Cell(role, phase, kind), joiner, leases, way)


def _plan_faults() -> tuple[Fault, ...]:
    """Return a reset or a freeze at every phase of a plan, of those who are there and of those who join."""
    resets = [_fault(_EXCHANGE, phase, RESET, way="both") for phase in PLAN_PHASES]
    resets += [_fault(MOVERS, phase, RESET, way="both") for phase in MOVING]
    freezes = [
        _fault(role, phase, FREEZE, joiner)
        for role in (WORKER, SERVER)
        for phase in PLAN_PHASES
        for joiner in (False, True)
        if (role, phase, joiner) != (WORKER, "REGISTERED", True)  # it has not registered: nobody knows of it
    ]
    return (*resets, *freezes)


PROMISES = (
    Promise("one worker frozen for ever: the others train", 25, "trained", (_fault(WORKER, REST, FREEZE),)),
    Promise("one server frozen for ever: back", 60, "trained", (_fault(SERVER, REST, FREEZE),)),
    Promise(
        "worker and server cannot reach each other: one is out",
        30,
        "noticed",
        tuple(_fault(_EXCHANGE, REST, DROP, way=way) for way in ("out", "in", "both")),
    ),
    Promise("reset or freeze in a plan: committed or cancelled", 45, "planned", _plan_faults()),
    Promise(
        "frozen, expelled, thawed: the job is whole, it has ended",
        _THAWED_LEASES * LEASE + 30,
        "whole",
        tuple(_fault(role, REST, FREEZE, leases=_THAWED_LEASES) for role in (WORKER, SERVER)),
    ),
)


def faults(times: int) -> list[tuple[Promise, Fault]]:
    """Return every fault of every promise, as often as wanted: the whole list in turn, so that jobs mix them."""
    every = [(promise, fault) for _ in range(times) for promise in PROMISES for fault in promise.faults]
    return [(promise, replace(fault, number=number, seed=number)) for number, (promise, fault) in enumerate(every)]


def jobs_of(some: Sequence[Fault], lease: float) -> list[JobDraw]:
    """Cut a list of faults into jobs, under sync, so that weights are compared; TCP, whose packets can be dropped."""
    cut = [tuple(some[at : at + _FAULTS_OF_A_JOB]) for at in range(0, len(some), _FAULTS_OF_A_JOB)]
    return [JobDraw(number, "sync", "tcp", lease, faults=group) for number, group in enumerate(cut)]


def goals(
    pairs: Sequence[tuple[Promise, Fault]], results: dict[int, Result], proved: Sequence[bool]
) -> list[BenchmarkGoal]:
    """Return what was promised, with the worst of each; a fault that the job did not come back from breaks its promise.

    Args:
        pairs: every fault with its promise.
        results: by the number of the fault.
        proved: of each job, whether its samples were trained exactly once.
    """
    found = []
    for promise in PROMISES:
        own = [results[fault.number] for of, fault in pairs if of is promise]
        good = [
            value for result in own if result.outcome == GOOD and (value := getattr(result, promise.which)) is not None
        ]
        worst = at_most(f"{promise.name}, worst", promise.seconds, max(good, default=0.0), "s")
        back = BenchmarkGoal(
            f"{promise.name}: faults come back from", f"all {len(own)}", len(good), len(good) == len(own)
        )
        found += [worst, back]
    count = sum(proved)
    return [
        *found,
        BenchmarkGoal("jobs: exactly once, weights equal", f"all {len(proved)}", count, count == len(proved)),
    ]


def _rows(pairs: Sequence[tuple[Promise, Fault]], results: dict[int, Result]) -> list[dict[str, Any]]:
    rows = []
    for promise in PROMISES:
        groups: dict[str, list[Result]] = {}
        for of, fault in pairs:
            if of is promise:
                who = "joining " if fault.joiner else ""
                what = f"{fault.kind} {fault.way} of {who}{fault.cell.role} at {fault.cell.phase}".replace("  ", " ")
                groups.setdefault(what, []).append(results[fault.number])
        rows += [_row(promise, what, some) for what, some in groups.items()]
    return rows


def _row(promise: Promise, what: str, some: Sequence[Result]) -> dict[str, Any]:
    def seconds(of: Callable[[Sequence[float]], float], which: str) -> float | None:
        found = [value for result in some if (value := getattr(result, which)) is not None]
        return of(found) if found else None

    return {
        "fault": what,
        "times": len(some),
        "came back": sum(result.outcome == GOOD for result in some),
        "goal is of": promise.which,
        **{f"{which} s": seconds(statistics.median, which) for which in ("noticed", "trained", "whole", "planned")},
        "worst s": seconds(max, promise.which),
    }


def main() -> int:
    """Measure, print, write build/bench/liveness.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3, help="each fault (default 3)")
    parser.add_argument("--lanes", type=int, default=2, help="jobs at a time (default 2)")
    parser.add_argument("--lease", type=float, default=LEASE, help="seconds; the goals are for 10, the default")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # jobs are ended then too
    if refusal := network.refusal():
        print(f"liveness: {refusal}", file=sys.stderr)
        return 1
    shutil.rmtree(FOLDER, ignore_errors=True)
    pairs = faults(arguments.times)
    run = Run(jobs_of([fault for _, fault in pairs], arguments.lease), FOLDER, arguments.lanes, room=True)
    run.run()
    rows = _rows(pairs, run.results)
    return finish("liveness", rows, goals(pairs, run.results, run.jobs), packages=("grpcio", "numpy"))


if __name__ == "__main__":
    as_program(main)
