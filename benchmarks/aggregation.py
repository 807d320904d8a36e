"""Measure what adding contributions in rank order costs, whoever comes first: the same bits in every run.

    python -m benchmarks.aggregation [--mb 100]

Servers keep contributions until all have come and add them inside the optimizer's pass (`in order`). Beside it, what a
server would do that adds each as it comes (`as they come`): a pass over the sum for each but the first, then the
optimizer's. Both by the compiled loops, SGD with momentum in float32, on all cores.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.support.report import as_program, finish
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.native.threads import in_parallel
from elastic_ps.optimizers.gradient_sum import CHUNK, GradientSum
from elastic_ps.optimizers.momentum import SGD

_WORKERS = (1, 2, 4, 8)
_REPEATS = 15
_HYPER = Hyper(lr=0.1, wd=1e-4, rescale_grad=1 / 64)


def _milliseconds(act: Callable[[], None]) -> float:
    taken = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


def _add(first: Array, other: Array, out: Array, low: int, high: int) -> None:
    np.add(first[low:high], other[low:high], out=out[low:high])


def row(workers: int, length: int) -> dict[str, Any]:
    """Measure one number of workers."""
    rule = SGD(momentum=0.9)
    old, new, velocity, total = (np.zeros(length, np.float32) for _ in range(4))
    given = [np.full(length, 1e-3 * (rank + 1), np.float32) for rank in range(workers)]

    def in_order() -> None:
        rule.apply(old, new, GradientSum(given), {"momentum": velocity}, 1, _HYPER)

    def as_they_come() -> None:
        for rank in range(1, workers):
            first, other = given[0] if rank == 1 else total, given[rank]
            in_parallel(length, CHUNK, partial(_add, first, other, total))
        summed = total if workers > 1 else given[0]
        rule.apply(old, new, GradientSum([summed]), {"momentum": velocity}, 1, _HYPER)

    ordered, arriving = _milliseconds(in_order), _milliseconds(as_they_come)
    return {"workers": workers, "in order ms": ordered, "as they come ms": arriving, "ratio": ordered / arriving}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=100, help="of gradients of each worker (default 100)")
    arguments = parser.parse_args()
    rows = [row(workers, arguments.mb * 1_000_000 // 4) for workers in _WORKERS]
    return finish("aggregation", rows, [])


if __name__ == "__main__":
    as_program(main)
