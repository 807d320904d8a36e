"""`python -m tests.world --seed N` runs one world and tells its story; `--seeds A-B` runs many, on all cores."""

import argparse
import os
import re
import sys
from collections.abc import Sequence

from tests.world import many, results
from tests.world.faults.draw import DRAWS
from tests.world.faults.job_draw import JobDraw
from tests.world.hunt import ALL, hunt
from tests.world.mutations import MUTATIONS, planted
from tests.world.shrink import shrunk

_ORDER = "PYTHONHASHSEED"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run worlds. Returns 0 where all is well, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--seed", type=int, help="of one world, whose story is told")
    parser.add_argument(
        "--seeds", type=_ranges, default=(), metavar="A-B,...", help="of many: from A (0) up to B, without B"
    )
    parser.add_argument("--fresh", type=int, default=0, metavar="N", help="beside them, N seeds by the commit's hash")
    parser.add_argument(
        "--mode", choices=("", "all-reduce"), default="", help="of every job; where it is not given the seed draws it"
    )
    parser.add_argument("--faults", type=int, default=10, help="that each job meets, at most (%(default)s)")
    parser.add_argument("--processes", type=int, default=0, help="that run many seeds (one on each core)")
    parser.add_argument("--each", action="store_true", help="say what came of each seed, not of failed ones alone")
    parser.add_argument("--node", default="", help="tell the story of this process alone")
    parser.add_argument("--without", type=_numbers, default=frozenset(), metavar="N,N", help="leave out these faults")
    parser.add_argument("--mutation", choices=("", *MUTATIONS, ALL), default="", help="plant a bug, and find it")
    parser.add_argument("--shrink", action="store_true", help="leave out faults as long as the world fails without")
    options = parser.parse_args(arguments)
    if options.seed is None:
        fresh = many.fresh(options.fresh)
        seeds = [*options.seeds, *fresh]
        if not seeds:
            parser.error("which seeds? --seed N, --seeds A-B or --fresh N")
        if options.mutation:
            return hunt(options.mutation, seeds, options.faults, options.processes, options.mode)
        return many.play(seeds, options.faults, options.each, options.processes, fresh, options.mode)
    with planted(options.mutation):
        return _one(
            DRAWS[options.mode](options.seed, options.faults).without(options.without), options.node, options.shrink
        )


def _ranges(text: str) -> list[int]:
    parts = [part.rpartition("-") for part in text.split(",")]
    return [seed for first, _, last in parts for seed in range(int(first or 0), int(last))]


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


if __name__ == "__main__":
    if os.environ.get(_ORDER) != "0":  # the order of sets is the same in every run
        os.execve(sys.executable, [sys.executable, "-m", "tests.world", *sys.argv[1:]], {**os.environ, _ORDER: "0"})
    sys.exit(main())
