"""This benchmark learns DL2 from the decisions of DRF on, and judges it on the published job sequences.

It imitates first, then learns online.

    python -m benchmarks.learning [--seeds 0 1 2] [--minutes 12] [--out FOLDER] [--data FOLDER]

One checkpoint for all cluster sizes, the last one; the sequences were never seen. Numbers are mean completion times in
slots over ten sequences of 60 jobs, with scaling free, as the published ones. `minutes` is of online learning, which
keeps one core busy; imitation takes half a minute to two minutes more.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.baselines import SIZES, published_jobs
from benchmarks.support.published_data import data_parser, parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import BootstrapSettings, bootstrap
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.online import Online, OnlineSettings
from dl2_scheduler.learning.rollout import Clusters, Episode, judged_times
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster

GOALS = {24: 28.8, 48: 24.4, 96: 23.0}
MOST_MINUTES = 30
CLUSTERS = tuple(parse_cluster(f"{size}x8cpu,8gpu") for size in SIZES)
IMITATION = BootstrapSettings(warm_up=0, episodes=12, epochs=8)


@dataclass
class TestbedJudge:
    """The judge plays the published sequences with the testbed's speeds.

    Attributes:
        speeds: of the testbed.
        episodes: by number of nodes.
    """

    speeds: Speeds
    episodes: dict[int, list[Episode]]

    @classmethod
    def of(cls, data: Path) -> "TestbedJudge":
        """Return the judge of the folder with the published files."""
        episodes = {}
        for size in SIZES:
            document = json.loads((data / f"peer_{size}_nodes.json").read_text())
            nodes = [Node(f"n{number}", document["node"]) for number in range(size)]
            episodes[size] = [Episode(published_jobs(each), nodes) for each in document["sequences"]]
        return cls(interpolated(read_points(data / "dl2_testbed_speed.txt"), 16, 16), episodes)

    def times(self, weights: Weights) -> dict[str, float]:
        """Mean completion times in slots, by number of nodes."""
        return {
            f"{size} nodes": float(judged_times(Clusters(episodes, self.speeds, weights.models), weights).mean())
            for size, episodes in self.episodes.items()
        }


def runs_parser(about: str | None, out: str) -> argparse.ArgumentParser:
    """Return a parser of the options that benchmarks of several runs have.

    Args:
        about: the benchmark, for --help.
        out: where its runs are written, unless the options say otherwise.
    """
    parser = data_parser(about)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path(out), help="where runs are written")
    return parser


def main() -> int:
    """Learn, judge, print, write build/bench/learning.json."""
    parser = runs_parser(__doc__, "build/learning")
    parser.add_argument("--minutes", type=float, default=12.0, help="of online learning (default 12)")
    arguments = parsed(parser)
    torch.set_num_threads(1)
    judge = TestbedJudge.of(arguments.data)
    rows: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        for row in learnt(judge, seed, arguments.minutes, arguments.out / f"seed-{seed}-{int(time.time())}"):
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
    return finish("learning", rows, list(_goals(rows)), ("numpy", "numba", "torch"))


def learnt(judge: TestbedJudge, seed: int, minutes: float, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row of the imitated policy and one of the learnt policy.

    Args:
        judge: of both.
        seed: of everything.
        minutes: of online learning.
        folder: of the run.
    """
    began = time.monotonic()
    lessons = Lessons(CLUSTERS, seed=seed)
    first, run = RunFolder(folder / "imitated"), RunFolder(folder / "learnt")
    for each in (first, run):
        each.begin({"seed": seed})
    bootstrap(Drf(), lessons, judge.speeds, IMITATION, first, lambda *_: None)
    yield _row(judge, "imitates DRF", first, 0, began)
    learner = Online(run, lessons, judge.speeds, OnlineSettings(), first)
    learner.run(60 * minutes, None, lambda *_: None)
    yield _row(judge, "learnt online", run, learner.updates, began)


def _row(judge: TestbedJudge, what: str, run: RunFolder, updates: int, began: float) -> dict[str, Any]:
    minutes = (time.monotonic() - began) / 60
    weights = load(run.path)
    assert isinstance(weights, Weights)
    return {"what": what, "run": str(run.path), "updates": updates, "minutes": minutes, **judge.times(weights)}


def _goals(rows: list[dict[str, Any]]) -> Iterator[BenchmarkGoal]:
    last = [row for row in rows if row["what"] == "learnt online"]
    for size, goal in GOALS.items():
        times = [row[f"{size} nodes"] for row in last]
        yield at_most(f"{size} nodes, the worst of {len(last)} seeds", goal, max(times), "slots")
        yield at_most(f"{size} nodes, mean of {len(last)} seeds", goal, mean(times), "slots")
    yield at_most("imitation and learning, the longest", MOST_MINUTES, max(row["minutes"] for row in last), "minutes")


if __name__ == "__main__":
    as_program(main)
