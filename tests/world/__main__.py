"""`python -m tests.world --seed N` runs one world and tells its story; `--seeds A-B` runs many and counts."""

import argparse
import gc
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import Pool

from rich.console import Console

from tests.world import coverage, results
from tests.world.draw import JobDraw, drawn
from tests.world.shrink import shrunk

_ORDER = "PYTHONHASHSEED"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run worlds. Returns 0 where all is well, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="of one world, whose story is told")
    which.add_argument("--seeds", type=_range, metavar="A-B", help="of many worlds: from A up to B, without B")
    parser.add_argument("--faults", type=int, default=10, help="that each job meets, at most (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="that run many seeds (%(default)s)")
    parser.add_argument("--each", action="store_true", help="say what came of each seed, not of failed ones alone")
    parser.add_argument("--node", default="", help="tell the story of this process alone")
    parser.add_argument("--without", type=_numbers, default=frozenset(), metavar="N,N", help="leave out these faults")
    parser.add_argument("--shrink", action="store_true", help="leave out faults as long as the world fails without")
    options = parser.parse_args(arguments)
    gc.freeze()  # what is loaded stays
    if options.seeds is not None:
        return _many(options.seeds, options.faults, options.each, options.processes)
    return _one(drawn(options.seed, options.faults).without(options.without), options.node, options.shrink)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last))


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)


def _one(draw: JobDraw, node: str, shrink: bool) -> int:
    result = results.play(draw)
    if shrink and result.failures:
        every = {fault.number for fault in draw.faults}
        wrong = _kind(result.failures)
        draw = shrunk(draw, lambda smaller: _kind(results.play(smaller).failures) == wrong)
        result = results.play(draw)
        gone = ",".join(str(number) for number in sorted(every - {fault.number for fault in draw.faults}))
        print(f"fails with {len(draw.faults)} of {len(every)} faults: --seed {draw.seed} --without {gone}")
    lines = result.story.split("\n")
    print("\n".join(line for line in lines if line[10:24].strip() in (node, "FAULT", "WORLD") or not node))
    print(f"seed {draw.seed}: {'; '.join(result.failures) or 'good'}")
    return 1 if result.failures else 0


def _kind(failures: Sequence[str]) -> str:
    """Return what is wrong first, without its numbers and names."""
    return re.sub(r"\S*\d\S*|\[.*", "", failures[0]) if failures else ""


def _play(seed: int, faults: int) -> results.Result:
    result = results.play(drawn(seed, faults))
    return result if result.failures else replace(result, story="")


def _many(seeds: range, faults: int, each: bool, processes: int) -> int:
    failed, hits, steps, watched, took = 0, [], 0, 0, 0.0
    with Pool(processes) as pool:
        play = partial(_play, faults=faults)
        for result in pool.imap(play, seeds) if processes > 1 else map(play, seeds):
            hits += result.hits
            steps += result.steps
            watched += result.watched
            took += result.real
            failed += bool(result.failures)
            if result.failures or each:
                print(result, flush=True)
    Console(width=140).print(coverage.table(hits))
    print(f"{watched} faults came alone while every block had a follower, and cost no restore where nothing failed")
    rate = len(seeds) / took * 60
    print(f"{len(seeds)} jobs, {steps} steps, {len(hits)} faults, {failed} failed; {rate:.0f} jobs a minute of a core")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get(_ORDER) != "0":  # the order of sets is the same in every run
        os.execve(sys.executable, [sys.executable, "-m", "tests.world", *sys.argv[1:]], {**os.environ, _ORDER: "0"})
    sys.exit(main())
