"""Measure an exchange: of MXNet's own parameter server (`dist_sync`, ps-lite) and of ours, in one run, in turn.

    python -m benchmarks.dataplane [--models tensor resnet50 ...] [--sizes 1w1s 2w1s ...] [--steps 10] [--rounds 2]
        [--networks digits lstm] [--workers 1 2 4 8]

Both run the same script, with SGD and momentum on the servers and one compute thread to a process:

    exchange  `train_kvstore`: a model's shapes, nothing but exchanges; what the goals are about
    rows      the same with row-sparse gradients, whose rows are pulled
    training  `train_network`: real networks on real data, by Gluon's Trainer, and one that an accelerator computes
    workers   ResNet-50's shapes on one server, by number of workers

A ratio is MXNet's median step over ours. The floor of one worker and one server is what the data plane's design page
says: (gradient bytes + parameter bytes + half of what the optimizer reads and writes) / copy bandwidth, the latter
measured here with as many threads as the machine has cores.
"""

import argparse
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.kvstores import Measured, Size, run_mxnet, run_own
from benchmarks.support.models import MODELS, TOUCHED
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, finish, machine, under
from dl2_scheduler.cluster.errors import TrialFailed

FOLDER = Path("build/bench/dataplane")
SIZES = ("1w1s", "2w1s", "2w2s", "4w2s")
NETWORKS = ("digits", "lstm", "device")
WORKERS = (1, 2, 4, 8)
TRANSPORTS = ("auto", "tcp")  # on one machine auto is shared memory
_LEAST = {"auto": 6, "tcp": 1.8}
_OF_FLOOR = 1.5
_LARGEST = ("tensor", "vgg16")
_COPIED_BYTES = 64 << 20

Run = Callable[[], Measured]


@dataclass(frozen=True)
class Cell:
    """A cell is one job that all systems run.

    Attributes:
        part: of the table.
        module: that workers run.
        model: for it.
        size: of the job.
        tolerance: by which the trained values of the systems may differ, relative.
    """

    part: str
    module: str
    model: str
    size: Size
    tolerance: float = 1e-5


def size_of(text: str) -> Size:
    """Read a job's size as the command line has it, as 2w1s."""
    found = re.fullmatch(r"(\d+)w(\d+)s", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: say it as 2w1s")
    return Size(int(found[1]), int(found[2]))


def copy_bandwidth() -> float:
    """Measure the bytes per second that all cores together copy, in memory that they have touched before."""
    threads = machine()["cores"]
    pairs = [(np.ones(_COPIED_BYTES, np.uint8), np.ones(_COPIED_BYTES, np.uint8)) for _ in range(threads)]
    rates = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(9):
            started = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(*pair), pairs))
            rates.append(threads * _COPIED_BYTES / (time.perf_counter() - started))
    return statistics.median(rates)


def floor_ms(model: str, bandwidth: float) -> float:
    """Return the least milliseconds that an exchange can take.

    SGD with momentum reads gradient, weight and velocity and writes two of them.
    """
    size = 4 * sum(math.prod(shape) for shape in MODELS[model]())
    return (size + size + 5 * size / 2) / bandwidth * 1000


def run(cell: Cell, steps: int, rounds: int) -> dict[str, list[Measured]]:
    """Run a job on each system in turn; return its runs by system.

    Args:
        cell: the job.
        steps: that count.
        rounds: in each of which every system runs it once.
    """
    what = cell.module, cell.model, cell.size, steps
    runs: dict[str, Run] = {"mxnet": partial(run_mxnet, FOLDER / "mxnet", *what)}
    for transport in TRANSPORTS:
        runs[transport] = partial(run_own, FOLDER / transport, *what, ("--transport", transport))
    measured: dict[str, list[Measured]] = {system: [] for system in runs}
    for _ in range(rounds):
        for system, one in runs.items():
            print(f"{cell.part}: {cell.model} {cell.size}: {system}", file=sys.stderr, flush=True)
            measured[system].append(one())
    values = {of_system.value for all_runs in measured.values() for of_system in all_runs}
    if not np.allclose(list(values), next(iter(values)), rtol=cell.tolerance):
        raise TrialFailed(f"{cell.model} {cell.size}: the systems have trained different values: {values}")
    return measured


def _median(runs: Iterable[Measured]) -> float:
    return statistics.median(seconds for run in runs for seconds in run.seconds) * 1000


def _row(cell: Cell, measured: dict[str, list[Measured]], bandwidth: float) -> dict[str, Any]:
    row: dict[str, Any] = {"part": cell.part, "model": cell.model, "job": str(cell.size)}
    row["mxnet ms"] = _median(measured["mxnet"])
    for transport in TRANSPORTS:
        row[f"{transport} ms"] = _median(measured[transport])
        row[f"{transport} ratio"] = row["mxnet ms"] / row[f"{transport} ms"]
    has_floor = cell.part == "exchange" and (cell.size.workers, cell.size.servers) == (1, 1)
    row["floor ms"] = floor_ms(cell.model, bandwidth) if has_floor else None
    for system, runs in measured.items():
        row[f"{system} MB"] = max(run.peak_bytes for run in runs) / 1e6
    return row


def _goals(rows: list[dict[str, Any]]) -> list[BenchmarkGoal]:
    goals = []
    exchanges = [row for row in rows if row["part"] == "exchange"]
    for transport in TRANSPORTS if exchanges else ():
        ratios = [row[f"{transport} ratio"] for row in exchanges]
        mean = math.exp(statistics.mean(math.log(ratio) for ratio in ratios))
        goals.append(at_least(f"{transport}: geometric mean of the ratios", _LEAST[transport], mean, "times"))
        goals.append(at_least(f"{transport}: smallest ratio", 1, min(ratios), "times"))
    for row in exchanges:
        if row["floor ms"] and row["model"] in _LARGEST:
            of_floor = row["auto ms"] / row["floor ms"]
            goals.append(under(f"{row['model']} {row['job']}, shared memory: step", _OF_FLOOR, of_floor, "floors"))
    return goals


def _cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    for model in arguments.models:
        for size in arguments.sizes:
            yield Cell("rows" if model in TOUCHED else "exchange", "benchmarks.scripts.train_kvstore", model, size)
    for network in arguments.networks:
        # contributions are added in another order, and training makes more of the difference
        yield Cell("training", "benchmarks.scripts.train_network", network, Size(2, 1), 1e-3)
    for workers in arguments.workers:
        yield Cell("workers", "benchmarks.scripts.train_kvstore", "resnet50", Size(workers, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sizes", nargs="*", type=size_of, default=[size_of(size) for size in SIZES], metavar="1w1s")
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--workers", nargs="*", type=int, default=list(WORKERS), metavar="N")
    parser.add_argument("--steps", type=int, default=10, help="of a run, after the warm-up (default 10)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each system for a cell (default 2)")
    arguments = parser.parse_args()
    bandwidth = copy_bandwidth()
    print(f"copy bandwidth: {bandwidth / 1e9:.1f} GB/s", file=sys.stderr)
    rows = [_row(cell, run(cell, arguments.steps, arguments.rounds), bandwidth) for cell in _cells(arguments)]
    return finish("dataplane", rows, _goals(rows), ("numpy", "mxnet"))


if __name__ == "__main__":
    as_program(main)
