"""Exploring beside not exploring: jobs of types that a cluster knows nothing of, `--explore 2%` and `--explore 0`.

    python -m benchmarks.exploration [--sequences 10] [--explore 2] [--data FOLDER]

The published sequences of 60 jobs come to 24 nodes, each to a new cluster, through the live loop with its history; only
the cluster is simulated, and the search for what is worth trying is not waited for in a process of its own. Scaling
costs what was measured. Numbers are mean completion times in slots. DRF uses no speeds: it shows what exploring costs
where nothing is gained by it.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.baselines import published_jobs
from benchmarks.support.published_data import data_parser, parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from benchmarks.support.searches import Searches
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.live.exploration.explorer import Explorer
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop, SlotObserver
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.policies.rules.speed_fit import EXPLORING, FittedSpeeds
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster

STATE = Path("build/bench/exploration")
NODES = parse_cluster("24x8cpu,8gpu")
SLOT = 1200.0
DRF, PLANNER, SURE = "drf", "planner", "planner without optimism"
POLICIES: dict[str, Callable[[], AllocationPolicy]] = {
    SURE: lambda: Planner(FittedSpeeds()),
    PLANNER: lambda: Planner(FittedSpeeds(EXPLORING)),
    DRF: Drf,
}


@dataclass(frozen=True)
class LivedSequence:
    """A `LivedSequence` is how the jobs of one sequence fared.

    Attributes:
        completion: their mean completion time, in slots.
        explored: how often a job explored.
        part: of the cluster's capacity that this took, at the end.
        most_part: the largest that it ever was of what had been lived.
    """

    completion: float
    explored: int = 0
    part: float = 0.0
    most_part: float = 0.0


def main() -> int:
    """Play the sequences, print, write build/bench/exploration.json."""
    parser = data_parser(__doc__)
    parser.add_argument("--sequences", type=int, default=10)
    parser.add_argument("--explore", type=float, default=2.0, help="per cent of the cluster (default 2)")
    arguments = parsed(parser)
    speeds = interpolated(read_points(arguments.data / "dl2_testbed_speed.txt"), 16, 16)
    document = json.loads((arguments.data / "peer_24_nodes.json").read_text())
    sequences = [published_jobs(each) for each in document["sequences"][: arguments.sequences]]
    part = arguments.explore / 100
    rows = [
        _row(policy, number, lived(jobs, speeds, policy, 0.0), lived(jobs, speeds, policy, part))
        for policy in POLICIES
        for number, jobs in enumerate(sequences)
    ]
    return finish("exploration", rows, list(_goals(rows, part)), ("numpy", "scipy", "numba"))


def lived(jobs: Sequence[Job], speeds: Speeds, policy: str, part: float) -> LivedSequence:
    """Play a sequence on a new cluster.

    Args:
        jobs: of the sequence.
        speeds: of their types, which nobody knows.
        policy: one of `POLICIES`.
        part: of the cluster that may explore; 0: none.
    """
    shutil.rmtree(STATE, ignore_errors=True)
    STATE.mkdir(parents=True)
    named = [replace(job, id=f"j{job.id}") for job in jobs]
    cluster, most_part = SimulatedCluster(named, NODES, speeds, SLOT, MEASURED), 0.0
    with closing(History(STATE / HISTORY_FILE)) as history:
        searches = Searches(history)
        now = lambda: cluster.lanes.slot * SLOT  # noqa: E731
        explorer = Explorer(part, STATE, lambda: searches.telling, now=now) if part else None
        observers: list[SlotObserver] = [searches] if part else []
        policies = Policies(lambda name: POLICIES[name](), DRF, STATE, policy)
        loop = SlotLoop(
            cluster, policies, NodeRule.SPREAD, history, observers=observers, now=now, explorer=explorer
        )  # fmt: skip
        while not cluster.done:
            loop.slot()
            most_part = max(most_part, explorer.budget.part_spent if explorer else 0.0)
    completion = float(cluster.lanes.completion_times()[0].mean())
    if explorer is None:
        return LivedSequence(completion)
    return LivedSequence(completion, explorer.budget.jobs, explorer.budget.part_spent, most_part)


def _row(policy: str, number: int, without: LivedSequence, exploring: LivedSequence) -> dict[str, Any]:
    row = {
        "policy": policy,
        "sequence": number,
        "explore 0": without.completion,
        "exploring": exploring.completion,
        "less %": 100 * (1 - exploring.completion / without.completion),
        "times": exploring.explored,
        "of the cluster %": 100 * exploring.part,
        "at most %": 100 * exploring.most_part,
    }
    print(row, file=sys.stderr, flush=True)
    return row


def _goals(rows: Sequence[dict[str, Any]], part: float) -> Iterator[BenchmarkGoal]:
    for policy, least in ((SURE, 2.0), (PLANNER, 0.0), (DRF, -1.0)):
        less = mean(row["less %"] for row in rows if row["policy"] == policy)
        yield at_least(f"{policy}: jobs take less", least, less, "%")
    yield at_most("part of the cluster, at any time", 100 * part, max(row["at most %"] for row in rows), "%")


if __name__ == "__main__":
    as_program(main)
