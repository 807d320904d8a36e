"""This benchmark says what speeds that another cluster measured are worth to a planner that begins elsewhere.

    python -m benchmarks.live_sharing_speeds [--seeds 10] [--first 0] [--nodes 24] [--jobs 60] [--data FOLDER]

An elder cluster lives through a sequence of jobs under `planner`, which fits speeds from nothing; a late one lives
through another sequence, under the same rule, with and without the elder's speeds. They are borrowed as `dl2 serve
--learn --share-with` borrows them for its dreams. The late cluster's nodes are as fast as the elder's; or some times as
fast or slow, and types again by themselves; or what each type is like belongs to another type there, so that what the
elder tells is wrong. Beside them is the planner that knows the true speeds. Numbers are mean completion times in slots.
"""

import sys
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.support.published_data import data_parser, parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish
from benchmarks.support.served_simulation import SLOT
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.federated.borrowed_speeds import borrowed_speeds
from dl2_scheduler.learning.federated.knowledge import ClusterKnowledge, type_digest
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.policies.rules.speed_fit import EXPLORING, FittedSpeeds
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster
from dl2_scheduler.world_model.future import largest

ALIKE, APART, WRONG = "as fast", "faster or slower", "types exchanged"
MOST = {ALIKE: 0.98, APART: 0.98, WRONG: 1.01}
"""Most that the late cluster takes with the elder's speeds, over what it takes without."""
_CLUSTER_SPREAD, _TYPE_SPREAD = 0.5, 0.2  # of the logarithms of how much faster the late cluster is, and its types
_FIRST_EPISODE = 70_000


class BorrowingPlanner:
    """See `AllocationPolicy`: a planner that fits speeds, and knows those that others told.

    Args:
        others: what other clusters told.
        jobs: of the types that come.

    Attributes:
        speeds: that it fits.
    """

    def __init__(self, others: Sequence[ClusterKnowledge], jobs: Sequence[Job]):
        self.speeds = FittedSpeeds(optimism=EXPLORING)
        self._planner, self._others, self._jobs = Planner(self.speeds), others, largest(jobs)

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        self.speeds.borrow(borrowed_speeds(self.speeds.reports, self._others, self._jobs).speeds)
        return self._planner.allocate(snapshot, room)

    @property
    def knowledge(self) -> ClusterKnowledge:
        """It is what this planner's cluster has to tell, without a policy."""
        told = {type_digest(model): dict(reports) for model, reports in self.speeds.reports.items()}
        return ClusterKnowledge("elder", 0.0, told, Weights((), {}))


def late_speeds(speeds: Speeds, seed: int) -> dict[str, Speeds]:
    """Return the late cluster's speeds by how they differ from the elder's.

    Args:
        speeds: the elder's.
        seed: of what is drawn.
    """
    random = np.random.default_rng(seed)
    factors = np.exp(random.normal(0, _CLUSTER_SPREAD) + random.normal(0, _TYPE_SPREAD, len(speeds.models)))
    scaled = {model: speeds.grid(model) * factor for model, factor in zip(speeds.models, factors, strict=True)}
    moved = {model: speeds.grid(speeds.models[at - 1]) for at, model in enumerate(speeds.models)}
    return {ALIKE: speeds, APART: Speeds(scaled), WRONG: Speeds(moved)}


def rows_of(seed: int, nodes: int, jobs: int, speeds: Speeds) -> Iterator[dict[str, Any]]:
    """Let the clusters of a seed live, and yield a row for each kind of late cluster.

    Args:
        seed: of the sequences.
        nodes: of each cluster.
        jobs: of each sequence.
        speeds: of the elder cluster.
    """
    cluster = parse_cluster(f"{nodes}x8cpu,8gpu")
    before, after = (episode.jobs for episode in Lessons((cluster,), jobs, seed=seed).episodes(_FIRST_EPISODE, 2))

    def lived(policy: AllocationPolicy, sequence: Sequence[Job], true: Speeds) -> float:
        simulated = SimulatedCluster(sequence, cluster, true, SLOT, MEASURED)
        return float(run(simulated, policy, NodeRule.SPREAD).mean())

    elder = BorrowingPlanner((), before)
    lived(elder, before, speeds)
    for name, true in late_speeds(speeds, seed).items():
        alone, beside = (lived(BorrowingPlanner(others, after), after, true) for others in ((), (elder.knowledge,)))
        row = {"seed": seed, "late cluster": name, "alone": alone, "with the elder's speeds": beside}
        row["with the true speeds"] = lived(Planner(TrueSpeeds(true)), after, true)
        print(row, file=sys.stderr, flush=True)
        yield row | {"over alone": beside / alone}


def main() -> int:
    """Let clusters live, print, write build/bench/live_sharing_speeds.json."""
    parser = data_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--nodes", type=int, default=24, help="of each cluster, with 8 cores and 8 GPUs (default 24)")
    parser.add_argument("--jobs", type=int, default=60, help="of each sequence (default 60)")
    given = parsed(parser)
    speeds = interpolated(read_points(given.data / "dl2_testbed_speed.txt"), 16, 16)
    seeds = range(given.first, given.first + given.seeds)
    rows = [row for seed in seeds for row in rows_of(seed, given.nodes, given.jobs, speeds)]
    return finish("live_sharing_speeds", rows, list(_goals(rows)), ("numpy", "scipy"))


def _goals(rows: Sequence[dict[str, Any]]) -> Iterator[BenchmarkGoal]:
    for name, most in MOST.items():
        found = mean(row["over alone"] for row in rows if row["late cluster"] == name)
        yield at_most(f"{name}: with the elder's speeds, over without", most, found, "times")


if __name__ == "__main__":
    as_program(main)
