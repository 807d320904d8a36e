"""This benchmark co-runs real jobs on virtual nodes of this machine, and writes down how fast each one trains.

    python -m benchmarks.measure_interference [--placements 360] [--repeats 3] [--window 0.8] [--minutes 45]

A node is one core, or an equal part of the cores: tasks are pinned to their node's. Jobs of six kinds
(`benchmarks.scripts.train_placed`) are started once; for each placement those that are in it are moved to their nodes
and trained for a moment. Each repeat goes through all placements in an order of its own, so that what the machine does
besides is spread over all of them.

What is measured is appended to FOLDER/rows.jsonl at once; a second call goes on where the first one ended, and where
it was measured with other nodes or windows it is refused. In the end all rows go to the file of --table, whose format
`dl2_scheduler.cluster.hardware.measured` describes. The table is under CC BY 4.0.
"""

import argparse
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.measured_rows import MeasuredRows
from benchmarks.support.pinned_jobs import JobKind, ModelSize, PinnedJob, running, used_now
from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_least, at_most, cpu_model, finish
from dl2_scheduler.cluster.errors import TrialFailed
from dl2_scheduler.cluster.hardware.machines import CPU, GPU
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, Places, merged, placement_key
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable
from dl2_scheduler.cluster.hardware.profiles import Profile

MODELS = ("device", "digits", "lstm", "mlp", "table", "wide")
COPIES = 2
"""Jobs of each model, so that two of a kind can meet."""
WIDER = (JobKind("lstm", workers=2),)
"""Jobs of other counts."""
MOST_TOGETHER = 3
SETTLE_SECONDS = 0.3
_MOST_SECONDS = 10.0
"""Of a window in which a job makes no step."""
_EPOCH_STEPS = 100
_MOST_COMPUTING = 0.95  # of a step: some exchange there is
_REPEATS = 3

Chosen = tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
"""Jobs, by their indices, with the nodes of their workers and of their servers."""


def main() -> int:
    """Measure, write the table, and say how noisy it is."""
    arguments = _parser().parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if arguments.nodes > len(cores):
        raise SystemExit(f"--nodes {arguments.nodes}: this machine has {len(cores)} cores, and a node is one at least")
    nodes = [part.tolist() for part in np.array_split(cores, arguments.nodes)]
    kinds = [JobKind(model) for model in arguments.models.split(",") for _ in range(COPIES)]
    kinds += [kind for kind in WIDER if kind.model in arguments.models.split(",")]
    chosen = placements_of(kinds, arguments.nodes, arguments.placements)
    rows = MeasuredRows(
        FOLDER / "measure_interference" / "rows.jsonl", f"{arguments.nodes} nodes, {arguments.window:g} s"
    )
    todo = list(missing(rows.all, kinds, chosen, arguments.repeats))
    if todo:
        with running(kinds, FOLDER / "measure_interference") as jobs:
            rows.begin({job.kind.model: job.size() for job in jobs})
            _measure_all(jobs, todo, nodes, rows, arguments)
    return _end(rows, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="kinds of jobs, joined by commas")
    parser.add_argument("--nodes", type=int, default=os.cpu_count() or 1, help="virtual nodes (default: the cores)")
    parser.add_argument("--placements", type=int, default=360, help="different placements (default 360)")
    parser.add_argument("--repeats", type=int, default=3, help="times that each is measured (default 3)")
    parser.add_argument("--window", type=float, default=0.8, help="seconds of a measurement (default 0.8)")
    parser.add_argument("--minutes", type=float, default=45.0, help="after which it ends in any case (default 45)")
    parser.add_argument("--table", type=Path, default=FOLDER / "interference.jsonl", help="file that is written")
    return parser


def placements_of(kinds: Sequence[JobKind], nodes: int, most: int, seed: int = 0) -> list[Chosen]:
    """Return different placements: all of single jobs and of pairs, then some larger ones that a seed draws.

    Args:
        kinds: of the jobs that run.
        nodes: that tasks are put on.
        most: how many placements.
        seed: of the draw.
    """
    found: list[Chosen] = []
    known: set[tuple[Any, ...]] = set()
    random = np.random.default_rng(seed)
    for together in range(1, MOST_TOGETHER + 1):
        choices = [
            tuple(zip(jobs, *zip(*places, strict=True), strict=True))
            for jobs in combinations(range(len(kinds)), together)
            for places in product(*(list(_places(kinds[job], nodes)) for job in jobs))
        ]
        for index in random.permutation(len(choices)):
            key = placement_key(named(kinds, choices[index]))
            if len(found) < most and key not in known:
                known.add(key)
                found.append(choices[index])
    return found


def _places(kind: JobKind, nodes: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for places in product(range(nodes), repeat=kind.workers + kind.servers):
        yield tuple(sorted(places[: kind.workers])), tuple(sorted(places[kind.workers :]))


def named(kinds: Sequence[JobKind], chosen: Chosen) -> list[Places]:
    """Return where the jobs of a placement lie, by their models."""
    return [(kinds[job].model, workers, servers) for job, workers, servers in chosen]


def missing(
    rows: Sequence[MeasuredPlacement], kinds: Sequence[JobKind], chosen: Sequence[Chosen], repeats: int
) -> Iterator[Chosen]:
    """Yield the placements that are still to be measured, once for each time; each repeat in another order.

    Args:
        rows: that there are.
        kinds: of the jobs.
        chosen: the placements.
        repeats: times that each is measured.
    """
    done = Counter(row.key for row in rows)
    keys = [placement_key(named(kinds, each)) for each in chosen]
    for repeat in range(repeats):
        for index in np.random.default_rng(repeat).permutation(len(chosen)):
            if done[keys[index]] <= repeat:
                yield chosen[index]


def _measure_all(
    jobs: Sequence[PinnedJob],
    todo: Sequence[Chosen],
    nodes: Sequence[Sequence[int]],
    rows: MeasuredRows,
    arguments: argparse.Namespace,
) -> None:
    began = time.monotonic()
    for number, chosen in enumerate(todo):
        if time.monotonic() - began > 60 * arguments.minutes:
            print(f"{arguments.minutes:g} minutes are over: call it again for the others", file=sys.stderr)
            return
        rows.add(measured(jobs, chosen, nodes, arguments.window))
        if number % 50 == 0:
            print(f"{number} of {len(todo)} after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def measured(
    jobs: Sequence[PinnedJob], chosen: Chosen, nodes: Sequence[Sequence[int]], window: float
) -> MeasuredPlacement:
    """Return how fast some jobs train at some places, while all others wait.

    Args:
        jobs: all that run.
        chosen: which of them train, and where.
        nodes: the cores of each.
        window: seconds.

    Raises:
        TrialFailed: a job has ended, or makes no step.
    """
    training = [jobs[job] for job, _, _ in chosen]
    for job, workers, servers in chosen:
        jobs[job].pin([nodes[node] for node in workers], [nodes[node] for node in servers])
        jobs[job].open(True)
    try:
        time.sleep(SETTLE_SECONDS)
        used, before = used_now(), [job.made() for job in training]
        deadline = time.monotonic() + _MOST_SECONDS
        time.sleep(window)
        while any(job.made().steps <= made.steps + 1 for job, made in zip(training, before, strict=True)):
            if time.monotonic() > deadline:
                raise TrialFailed(f"{chosen}: a job makes no step")
            time.sleep(window / 4)
        after, used_after = [job.made() for job in training], used_now()
    finally:
        for job in training:
            job.open(False)
    seconds = used_after.at - used.at
    found = []
    for (_, workers, servers), job, one, two in zip(chosen, training, before, after, strict=True):
        start, end = job.cpu_seconds(used.groups), job.cpu_seconds(used_after.groups)
        cpu = round((end[0] - start[0]) / seconds, 3), round((end[1] - start[1]) / seconds, 3)
        speed = (two.samples - one.samples) / (two.seconds - one.seconds)
        found.append(MeasuredJob(job.kind.model, workers, servers, (float(f"{speed:.5g}"),), cpu))
    ours = sum(sum(job.cpu) for job in found if job.cpu)
    others = max(0.0, (used_after.busy - used.busy) / seconds - ours)
    return MeasuredPlacement(tuple(found), (round(others, 2),))


def _end(rows: MeasuredRows, arguments: argparse.Namespace) -> int:
    """Write the table, and report."""
    placements = sorted(merged(rows.all), key=lambda row: (len(row.jobs), row.key))
    profiles = profiles_of(placements, rows.models)
    about = {
        "about": "speeds (samples/s) of real elastic_ps jobs that share pinned nodes; written by measure_interference",
        "licence": "CC BY 4.0",
        "machine": f"{cpu_model()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "node": f"an equal part of {os.cpu_count()} cores; memory, last-level cache and loopback are shared by all",
        "date": datetime.now(UTC).date().isoformat(),
        "window_seconds": arguments.window,
    }
    known = tuple(row for row in placements if all(job.model in profiles for job in row.jobs))
    table = MeasuredTable(known, profiles, arguments.nodes, about)
    arguments.table.parent.mkdir(parents=True, exist_ok=True)
    arguments.table.write_text("".join(f"{line}\n" for line in table.lines()))
    print(f"written: {arguments.table}", file=sys.stderr)
    return finish("measure_interference", list(_summary(table)), _goals(table), ["numpy", "mxnet"])


def profiles_of(rows: Sequence[MeasuredPlacement], models: Mapping[str, ModelSize]) -> dict[str, Profile]:
    """Return the profiles of the models whose jobs were measured alone, on one node and on two.

    Args:
        rows: measured.
        models: what they are like.
    """
    found = {}
    alone = [row.jobs[0] for row in rows if len(row.jobs) == len(row.jobs[0].workers) == len(row.jobs[0].servers) == 1]
    for model, size in models.items():
        together = [job for job in alone if job.model == model and job.workers == job.servers]
        apart = [job for job in alone if job.model == model and job.workers != job.servers]
        if together and apart:
            found[model] = _profile(size, apart[0], together[0])
    return found


def _profile(size: ModelSize, apart: MeasuredJob, together: MeasuredJob) -> Profile:
    """Return what a step takes: the processor seconds of its worker as computing, and all else as exchanging.

    Args:
        size: of the model.
        apart: measured with a node for each task.
        together: measured on one node.
    """
    assert apart.cpu is not None, "measure_interference writes it"
    steps = [size.batch / job.speed for job in (apart, together)]
    alone = min(apart.cpu[0] * steps[0], _MOST_COMPUTING * min(steps))
    apart_mbps, together_mbps = (size.size_mb / (step - alone) for step in steps)
    task = {CPU: 1.0, GPU: 0.0}
    numbers = (alone, size.size_mb, apart_mbps, together_mbps)
    rounded = (float(f"{number:.4g}") for number in numbers)
    return Profile(size.batch, _EPOCH_STEPS, *rounded, task, task, *apart.cpu)


def _summary(table: MeasuredTable) -> Iterator[dict[str, Any]]:
    """Yield for each model how fast it is alone, and what others beside it cost."""
    alone = {_alone_key(row.jobs[0]): row.jobs[0].speed for row in table.placements if len(row.jobs) == 1}
    for model in table.models:
        together, apart = alone[model, ((0,), (0,))], alone[model, ((0,), (1,))]
        row: dict[str, Any] = {"model": model, "alone together": together, "alone apart": apart}
        row["cpu worker"], row["cpu server"] = table.profiles[model].cpu_worker, table.profiles[model].cpu_server
        for count in range(2, MOST_TOGETHER + 1):
            lost = [
                job.speed / alone[_alone_key(job)]
                for each in table.placements
                if len(each.jobs) == count
                for job in each.jobs
                if job.model == model
            ]
            row[f"of it among {count}"] = f"{np.mean(lost):.2f} ({min(lost):.2f} to {max(lost):.2f})" if lost else ""
        yield row


def _alone_key(job: MeasuredJob) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return what a job's places have in common with its row alone."""
    ((model, *roles),) = placement_key([(job.model, job.workers, job.servers)])
    return model, tuple(roles)


def noises(table: MeasuredTable) -> list[float]:
    """Return the standard deviation of each job's repeated speeds, as a part of them."""
    repeated = [job.speeds for row in table.placements for job in row.jobs if len(job.speeds) > 1]
    return [float(np.std(np.log(speeds), ddof=1)) for speeds in repeated]


def _goals(table: MeasuredTable) -> list[BenchmarkGoal]:
    thrice = sum(len(row.jobs[0].speeds) >= _REPEATS for row in table.placements)
    noise = 100 * float(np.median(noises(table) or [1.0]))
    return [
        at_least("placements measured three times", 300, thrice, "placements"),
        at_most("noise: median standard deviation of a job's repeats", 5.0, noise, "%"),
    ]


if __name__ == "__main__":
    as_program(main)
