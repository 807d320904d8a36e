"""Best fit at size: 10,000 blocks on 256 servers, scaled out, scaled in, and afresh.

    python -m benchmarks.assignment

A row's `moved` is beside `needed`, a bound from below that no assignment within one largest block can undercut: what
leaves, and what exceeds the cheapest window. `runs` is the mean number of runs of consecutive blocks per server.
"""

import random
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.support.report import as_program, finish, under
from coordinator.core.plans.best_fit import best_fit
from elastic_ps.core.model import runs

BLOCKS = 10_000
REPEATS = 15
LIMIT_MS = 100.0
_LARGEST = 4 << 20


def main() -> int:
    rows = [row for name, sizes in _models().items() for row in _rows(name, sizes)]
    slowest = max(row["median ms"] for row in rows)
    return finish("assignment", rows, [under("10,000 blocks on 256 servers, slowest case", LIMIT_MS, slowest, "ms")])


def _models() -> dict[str, list[int]]:
    rng = random.Random(1)
    return {
        "equal blocks": [_LARGEST] * BLOCKS,
        "mixed blocks": [rng.choice((_LARGEST, rng.randint(1, _LARGEST), rng.randint(1, 4096))) for _ in range(BLOCKS)],
    }


def _rows(model: str, sizes: list[int]) -> list[dict[str, Any]]:
    rng = random.Random(2)
    half = best_fit(sizes, [None] * BLOCKS, 128)
    full = best_fit(sizes, half, 256)
    cases: dict[str, tuple[Sequence[int | None], int]] = {
        "fresh, 256": ([None] * BLOCKS, 256),
        "out, 128 to 256": (half, 256),
        "in, 256 to 128": ([server if server < 128 else None for server in full], 128),
        "out, 1 to 256": ([0] * BLOCKS, 256),
        "one of 256 leaves": ([None if server == 255 else server for server in full], 255),
        "scattered at random": ([rng.randrange(256) for _ in sizes], 256),
    }
    return [{"model": model, "case": case, **_measure(sizes, *arguments)} for case, arguments in cases.items()]


def _measure(sizes: list[int], before: Sequence[int | None], servers: int) -> dict[str, Any]:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        after = best_fit(sizes, before, servers)
        times.append(1000 * (time.perf_counter() - start))
    loads = [0] * servers
    held: list[list[int]] = [[] for _ in range(servers)]
    for block, server in enumerate(after):
        loads[server] += sizes[block]
        held[server].append(block)
    moved = sum(size for size, old, new in zip(sizes, before, after, strict=True) if old != new)
    return {
        "median ms": median(times),
        "worst ms": max(times),
        "moved MB": moved / 1e6,
        "needed MB": _needed(sizes, before, servers) / 1e6,
        "spread / largest": (max(loads) - min(loads)) / max(sizes),
        "runs": sum(len(list(runs(blocks))) for blocks in held) / servers,
    }


def _needed(sizes: Sequence[int], before: Sequence[int | None], servers: int) -> int:
    """Return the bytes that every assignment within one largest block moves.

    That is, for each window, what is above it or missing.
    """
    loads, homeless, largest = [0] * servers, 0, max(sizes)
    for size, server in zip(sizes, before, strict=True):
        if server is None:
            homeless += size
        else:
            loads[server] += size

    def cost(bottom: int) -> int:
        above = sum(max(0, load - bottom - largest) for load in loads)
        missing = sum(max(0, bottom - load) for load in loads)
        return max(above + homeless, missing)

    # The first part falls with the window's bottom and the second rises, so the cost has one valley.
    low, high = 0, max(sum(sizes), 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if cost(middle) <= cost(middle + 1) else (middle + 1, high)
    return cost(low)


if __name__ == "__main__":
    as_program(main)
