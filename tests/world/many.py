"""Many worlds, one after the other on each core: what came of them, and how each that failed is played again."""

import multiprocessing
import os
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from tests.paths import ROOT
from tests.world import results
from tests.world.faults import coverage
from tests.world.faults.draw import DRAWS
from tests.world.known import KNOWN
from tests.world.mutations import planted

_FAULTS = 10
_WORLDS_OF_A_PROCESS = 100
"""What nodes that were killed have held, files of memory above all, is given back when their process ends."""


def play(
    seeds: Sequence[int],
    faults: int,
    each: bool,
    processes: int = 0,
    untried: Collection[int] = (),
    mode: str = "",
) -> int:
    """Run the worlds of seeds and tell what came of them.

    Args:
        seeds: of the worlds.
        faults: that each job meets, at most.
        each: tell of every seed, not of those alone that failed.
        processes: that run them; 0: one on each core.
        untried: those that nobody ran before the change at hand: what fails there need not be its fault.
        mode: of every job, see `DRAWS`.

    Returns:
        1 where a seed has failed that is neither known to fail nor untried, or one known to fail is good; else 0.
    """
    failed: list[int] = []
    hits: dict[bool, list[Any]] = {False: [], True: []}  # of jobs with servers, of those without
    steps, watched, took = 0, 0, 0.0
    with each_result(seeds, faults, processes, mode=mode) as found:
        for result in found:
            hits[result.draw.serverless] += result.hits
            steps += result.steps
            watched += result.watched
            took += result.real
            if result.failures or each:
                print(result, flush=True)
            if result.failures:
                failed.append(result.draw.seed)
    for serverless, some in hits.items():
        if some:
            print("jobs without servers:" if serverless else "jobs with servers:")
            Console(width=140).print(coverage.table(some, serverless))
    print(f"{watched} faults came alone while every block had a follower, and cost no restore where nothing failed")
    rate = len(seeds) / took * 60
    met = sum(map(len, hits.values()))
    print(
        f"{len(seeds)} jobs, {steps} steps, {met} faults, {len(failed)} failed; {rate:.0f} jobs a CPU minute, "
        f"{steps / took * 60 / 100:.0f} times 100 steps"
    )
    for seed in failed:
        drawn_so = ("" if faults == _FAULTS else f" --faults {faults}") + (f" --mode {mode}" if mode else "")
        why = f" (known: {KNOWN[seed]})" if seed in KNOWN else ""
        print(f"at {_commit() or 'this code'}: python -m tests.world --seed {seed}{drawn_so} --shrink{why}")
    healed = sorted(KNOWN.keys() & set(seeds) - set(failed)) if faults == _FAULTS else []
    for seed in healed:
        print(f"seed {seed} is good: take it out of tests/world/known.py")
    return 1 if healed or set(failed) - KNOWN.keys() - set(untried) else 0


def fresh(count: int) -> range:
    """Return seeds that few have run before: the commit's hash says where they begin, else the time."""
    first = int(_commit()[:10] or f"{int(time.time()):x}", 16)
    if count:
        print(f"fresh seeds: {first}-{first + count}", flush=True)
    return range(first, first + count)


@contextmanager
def each_result(
    seeds: Sequence[int], faults: int, processes: int, mutation: str = "", mode: str = ""
) -> Iterator[Iterator[results.Result]]:
    """Give the results in the order of the seeds, where a mutation is planted in production's code.

    Args:
        seeds: of the worlds.
        faults: that each job meets, at most.
        processes: that run them; 0: one on each core.
        mutation: its name; none: the code is as it is.
        mode: of every job, see `DRAWS`.
    """
    one = partial(_play, faults=faults, mutation=mutation, mode=mode)
    processes = processes or len(os.sched_getaffinity(0))
    fork = multiprocessing.get_context("fork")  # all is imported once
    with fork.Pool(processes, maxtasksperchild=_WORLDS_OF_A_PROCESS) as pool:
        yield pool.imap(one, seeds)


def _play(seed: int, faults: int, mutation: str, mode: str) -> results.Result:
    with planted(mutation):
        result = results.play(DRAWS[mode](seed, faults))
    return result if result.failures else replace(result, story="")


def _commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip()
