"""This benchmark learns DL2 as the published code does, from random weights, and judges it on the published sequences.

    python -m benchmarks.paper_learning [--seeds 0 1 2] [--updates 1000] [--unguided] [--out FOLDER] [--data FOLDER]

It learns on 96 nodes, where jobs hardly compete, with the settings of `PUBLISHED`; meanwhile it is judged on sequences
of its own, and the best policy is kept. That one is judged on the ten published sequences, which it never saw. Numbers
are mean completion times in slots over 60 jobs, with the paper's measured speeds and scaling free.
"""

import csv
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.learning import TestbedJudge, runs_parser
from benchmarks.support.published_data import parsed
from benchmarks.support.report import as_program, at_most, finish
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.paper.bootstrap import PaperNetwork, untrained
from dl2_scheduler.learning.paper.judging import completion_time
from dl2_scheduler.learning.paper.online import PaperOnline
from dl2_scheduler.learning.paper.settings import PUBLISHED
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.policies.learnt.dl2 import learnt, load
from dl2_scheduler.sim.simulator import SimulatedCluster
from dl2_scheduler.sim.trace import parse_cluster

NODES = 96
GOAL = 29.0  # slots: the worst of three seeds of the published code itself
_FOREVER = 1e9  # seconds: learning ends by updates


def main() -> int:
    """Learn, judge, print, write build/bench/paper_learning.json."""
    parser = runs_parser(__doc__, "build/paper_learning")
    parser.add_argument("--updates", type=int, default=1000, help="of online learning (default 1000)")
    parser.add_argument("--unguided", action="store_true", help="leave out the rule that explores")
    arguments = parsed(parser)
    torch.set_num_threads(1)
    judge = TestbedJudge.of(arguments.data)
    rows = []
    for seed in arguments.seeds:
        folder = arguments.out / f"seed-{seed}-{int(time.time())}"
        rows.append(row(judge, seed, arguments.updates, not arguments.unguided, folder))
        print(rows[-1], file=sys.stderr, flush=True)
    worst = max(row["slots"] for row in rows)
    goals = [at_most(f"{NODES} nodes, the worst of {len(rows)} seeds", GOAL, worst, "slots")]
    return finish("paper_learning", rows, goals, ("numpy", "numba", "torch"))


def row(judge: TestbedJudge, seed: int, updates: int, guided: bool, folder: Path) -> dict[str, Any]:
    """Return what a policy reaches that began with random weights, with the curve of its learning.

    Args:
        judge: has the published sequences.
        seed: of everything.
        updates: of learning.
        guided: see `PaperSettings`.
        folder: of the run.
    """
    first, run = RunFolder(folder / "random"), RunFolder(folder / "learnt")
    for each in (first, run):
        each.begin({"seed": seed})
    lessons = Lessons((parse_cluster(f"{NODES}x8cpu,8gpu"),), seed=seed)
    untrained(PaperNetwork(), judge.speeds.models, seed, first)
    online = PaperOnline(run, lessons, judge.speeds, replace(PUBLISHED, guided=guided), first)
    began = online.judge()[0]
    online.run(_FOREVER, updates, lambda *_: None)
    with (run.path / "learning.csv").open(newline="") as file:
        curve = {int(each["step"]): round(float(each["judged/jct_0"]), 2) for each in csv.DictReader(file)}
    policy = learnt(load(run.path))
    times = [
        completion_time(SimulatedCluster(list(episode.jobs), list(episode.nodes), judge.speeds), policy)
        for episode in judge.episodes[NODES]
    ]
    return {
        "seed": seed,
        "guided": guided,
        "slots": round(float(np.mean(times)), 2),
        "judged": {0: round(began, 2), **curve},
        "run": str(run.path),
    }


if __name__ == "__main__":
    as_program(main)
