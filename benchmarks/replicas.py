"""Measure what a step costs where each block has a follower, over the step without, in one run, in turn.

    python -m benchmarks.replicas [--models tensor resnet50 ...] [--sizes 2w2s 4w2s] [--networks digits lstm ...]
        [--transports auto tcp] [--steps 10] [--rounds 2]

The jobs are those of `benchmarks.dataplane` that have two servers or more, since a follower is another server:

    exchange    a model's shapes, nothing but exchanges, by SGD and momentum on the servers
    rows        the same with row-sparse gradients, whose rows are pulled
    async       ResNet-50's shapes in a job that is `async`
    compressed  ResNet-50's shapes with gradients of two bits
    training    real networks on real data, by Gluon's Trainer: two whose steps take a few milliseconds, and three
                whose steps have the size of users'

A ratio is the median step with followers over the median step without. ResNet-50's shapes run by MXNet's own parameter
server too, which has no replicas. Each protected job is looked at when it has ended: all its blocks have a follower.
"""

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.dataplane import size_of
from benchmarks.support.kvstores import ASYNC, OWN, Measured, Size, run_mxnet, run_own
from benchmarks.support.models import MODELS, TOUCHED
from benchmarks.support.report import FOLDER as RESULTS
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from coordinator.server.journal import Journal
from dl2_scheduler.cluster.errors import TrialFailed

FOLDER = RESULTS / "replicas"
SIZES = ("2w2s", "4w2s")
NETWORKS = {"digits": 20, "lstm": 20, "resnet20": 2, "resnet18": 2, "lstm200": 2}
"""Steps of each that count for one of an exchange: those that take a few milliseconds differ."""

TRANSPORTS = ("auto", "tcp")  # on one machine auto is shared memory
_MOST = {"exchange": 1.6, "rows": 1.6, "async": 1.6, "compressed": 1.6, "training": 1.1}
_OF_MXNET = 3
_MXNET_MODEL = "resnet50"
_REPLICAS = {"without": (), "with": ("--replicas", "1")}
_TWO_BITS = ("--compression", '{"type": "2bit", "threshold": 0.5}')
_EXCHANGE, _TRAINING = "benchmarks.scripts.train_kvstore", "benchmarks.scripts.train_network"


@dataclass(frozen=True)
class ReplicatedCell:
    """A cell is one job, which runs with followers and without.

    Attributes:
        part: of the table.
        module: that workers run.
        model: for it.
        size: of the job.
        transport: of its tensors.
        store: name of the kvstore.
        more: further arguments of the module.
    """

    part: str
    module: str
    model: str
    size: Size
    transport: str
    store: str = OWN
    more: tuple[str, ...] = ()


def cells(arguments: argparse.Namespace) -> Iterator[ReplicatedCell]:
    """Yield what is measured.

    Args:
        arguments: of the command line.
    """
    for transport in arguments.transports:
        for model in arguments.models:
            for size in arguments.sizes:
                yield ReplicatedCell("rows" if model in TOUCHED else "exchange", _EXCHANGE, model, size, transport)
        if _MXNET_MODEL in arguments.models:
            yield ReplicatedCell("async", _EXCHANGE, _MXNET_MODEL, Size(2, 2), transport, ASYNC)
            yield ReplicatedCell("compressed", _EXCHANGE, _MXNET_MODEL, Size(2, 2), transport, more=_TWO_BITS)
        for network in arguments.networks:
            yield ReplicatedCell("training", _TRAINING, network, Size(2, 2), transport)


def run(cell: ReplicatedCell, steps: int, rounds: int) -> dict[str, list[Measured]]:
    """Run a job with followers and without, in turn; return its runs by which it was.

    Args:
        cell: the job.
        steps: that count.
        rounds: in each of which both run once, every other time the one with followers first.
    """
    steps *= NETWORKS[cell.model] if cell.part == "training" else 1
    what = cell.module, cell.model, cell.size, steps
    runs: dict[str, Callable[[], Measured]] = {how: partial(_run_own, cell, how, steps) for how in _REPLICAS}
    if (cell.part, cell.model, cell.transport) == ("exchange", _MXNET_MODEL, "auto"):
        runs["mxnet"] = partial(run_mxnet, FOLDER / "mxnet", *what)
        (FOLDER / "mxnet").mkdir(parents=True, exist_ok=True)
    measured: dict[str, list[Measured]] = {how: [] for how in runs}
    for number in range(rounds):
        for how in runs if number % 2 == 0 else reversed(runs):
            print(f"{cell.part}: {cell.model} {cell.size} {cell.transport}: {how}", file=sys.stderr, flush=True)
            measured[how].append(runs[how]())
    values = {one.value for how in _REPLICAS for one in measured[how]}
    if len(values) > 1 and cell.store != ASYNC:
        raise TrialFailed(f"{cell.model} {cell.size}: with followers and without, other values were trained: {values}")
    return measured


def _run_own(cell: ReplicatedCell, how: str, steps: int) -> Measured:
    folder = FOLDER / how
    options = ("--transport", cell.transport, *_REPLICAS[how])
    measured = run_own(folder, cell.module, cell.model, cell.size, steps, options, cell.store, cell.more)
    journal = Journal(folder / "elastic_ps" / "jobs" / how / "journal.sqlite")
    try:
        loaded = journal.load()
    finally:
        journal.close()
    configuration = loaded[0].configuration if loaded is not None else None
    if how == "with" and (configuration is None or not configuration.followers or min(configuration.followers) < 0):
        raise TrialFailed(f"{cell.model} {cell.size}: the job was to have followers, and had none for some blocks")
    return measured


def _row(cell: ReplicatedCell, measured: dict[str, list[Measured]]) -> dict[str, Any]:
    row: dict[str, Any] = {"part": cell.part, "model": cell.model, "job": str(cell.size), "transport": cell.transport}
    for how in _REPLICAS:
        row[f"{how} ms"] = _median(measured[how])
    row["ratio"] = row["with ms"] / row["without ms"]
    row["mxnet ms"] = _median(measured["mxnet"]) if "mxnet" in measured else None
    for how in _REPLICAS:
        row[f"{how} MB"] = max(one.peak_bytes for one in measured[how]) / 1e6
    row["load"] = round(os.getloadavg()[0], 1)
    return row


def _median(runs: Sequence[Measured]) -> float:
    return statistics.median(seconds for one in runs for seconds in one.seconds) * 1000


def goals(rows: Sequence[dict[str, Any]]) -> list[BenchmarkGoal]:
    """Return what was promised, and what was measured of it.

    Args:
        rows: the table's.
    """
    found = []
    for part, most in _MOST.items():
        ratios = [row["ratio"] for row in rows if row["part"] == part]
        if ratios:
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            found.append(at_most(f"{part}: geometric mean of the ratios", most, mean, "times"))
    for row in rows:
        if row["mxnet ms"] is not None:
            name = f"{row['model']} {row['job']}: MXNet's step over the protected one"
            found.append(at_least(name, _OF_MXNET, row["mxnet ms"] / row["with ms"], "times"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sizes", nargs="*", type=size_of, default=[size_of(size) for size in SIZES], metavar="2w2s")
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--transports", nargs="*", choices=TRANSPORTS, default=list(TRANSPORTS))
    parser.add_argument(
        "--steps",
        type=int,
        default=10,
        help="of a run, after the warm-up (default 10; of training 2 or 20 times as many)",
    )
    parser.add_argument("--rounds", type=int, default=2, help="runs of each job with and without (default 2)")
    arguments = parser.parse_args()
    if any(size.servers < 2 for size in arguments.sizes):
        parser.error("a follower is another server: give sizes of two servers or more")
    rows = [_row(cell, run(cell, arguments.steps, arguments.rounds)) for cell in cells(arguments)]
    return finish("replicas", rows, goals(rows), ("numpy", "mxnet"))


if __name__ == "__main__":
    as_program(main)
