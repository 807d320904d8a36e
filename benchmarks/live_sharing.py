"""Several clusters that learn: what a late one gains from what others know, and two that share from their first slot.

    python -m benchmarks.live_sharing [--seeds 0 1 2] [--nodes 12] [--jobs 30] [--data FOLDER]

Clusters are simulated, at the speeds that the paper's testbed had; their policies, histories, dreams and judge are
those of `dl2 serve --learn --share-with`, in one process and without the guard. All begin as an imitation of DRF. For
each seed there are two sequences of jobs, one of which an elder cluster has lived through before the late one begins
with the other. Numbers are mean completion times in slots.
"""

import json
import logging
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.live_learning import IMITATION
from benchmarks.support.published_data import data_parser, parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish
from benchmarks.support.served_simulation import SLOT, Sequences
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import bootstrap
from dl2_scheduler.learning.federated.member import FederationMember
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.live.program import Dreaming
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import DL2, make_live_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster

STATE = Path("build/bench/live_sharing")
LATE_GAINS = 0.97
"""Most that the late cluster's first sequence takes with what others know, over what it takes without."""
_FIRST_EPISODE = 60_000  # imitation has seen those before


class LearningCluster:
    """A `LearningCluster` lives through one sequence of jobs; see `SlotObserver` for how it learns between slots.

    Args:
        folder: of its state and of its run, a copy of the one that imitates.
        imitation: the run that imitates.
        jobs: of the sequence.
        nodes: of the cluster.
        speeds: of the jobs, which it does not know.
        shared: the folder that it shares; None: it learns alone.
        stack: keeps its history.
    """

    def __init__(
        self,
        folder: Path,
        imitation: Path,
        jobs: Sequence[Job],
        nodes: Sequence[Node],
        speeds: Speeds,
        shared: Path | None,
        stack: ExitStack,
    ):
        shutil.copytree(imitation, folder / "run")
        self._cluster = Sequences([jobs], nodes, speeds)
        self._name = f"{DL2}{(folder / 'run').absolute()}"
        self._policies = Policies(make_live_policy, "drf", folder, self._name)
        history = stack.enter_context(closing(History(folder / HISTORY_FILE)))
        member = None if shared is None else FederationMember(shared, folder)
        self._dreaming = Dreaming(RunFolder(folder / "run"), history, NodeRule.SPREAD, member)
        now = lambda: self._cluster.slot * SLOT  # noqa: E731
        self._loop = SlotLoop(self._cluster, self._policies, NodeRule.SPREAD, history, observers=(self,), now=now)
        self._accepted = False
        self.tried, self.taken, self.borrowed, self.core_seconds = 0, 0, 0, 0.0

    @property
    def done(self) -> bool:
        """It is true when all jobs have ended."""
        return self._cluster.done

    @property
    def completion(self) -> float:
        """The mean completion time of its jobs in slots."""
        return self._cluster.ended[0]

    def slot(self) -> SlotOutcome:
        """Run one slot."""
        return self._loop.slot()

    def before(self, _: int) -> None:
        """See `SlotObserver.before`."""
        if self._accepted:
            self._policies.renew(self._name)
        self._accepted = False

    def after(self, _: int) -> None:
        """See `SlotObserver.after`."""
        if (found := self._dreaming.dream()) is None:
            return
        theirs = found.get("sharing", {})
        self._accepted = bool(found.get("accepted") or theirs.get("accepted"))
        self.tried += "verdict" in theirs
        self.taken += bool(theirs.get("accepted"))
        self.borrowed = max(self.borrowed, theirs.get("speeds", 0))
        self.core_seconds += found["core_seconds"]


class SeedOfClusters:
    """These are the clusters of one seed.

    Args:
        seed: of imitation and of the two sequences.
        nodes: of each cluster.
        jobs: of each sequence.
        speeds: of the jobs.
    """

    def __init__(self, seed: int, nodes: tuple[Node, ...], jobs: int, speeds: Speeds):
        self._seed, self._nodes, self._speeds = seed, nodes, speeds
        self._state = STATE / f"seed-{seed}"
        shutil.rmtree(self._state, ignore_errors=True)
        lessons = Lessons((nodes,), jobs=jobs, seed=seed, cost=MEASURED)
        imitation = RunFolder(self._state / "imitation")
        imitation.begin({"seed": seed, "network": "shared"})
        bootstrap(Drf(), lessons, speeds, IMITATION, imitation, lambda *_: None)
        self._imitation = imitation.path
        self._sequences = [episode.jobs for episode in lessons.episodes(_FIRST_EPISODE, 2)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Run all of it, and yield a row for each cluster."""
        (self._state / "elder-tells").mkdir()
        (self._state / "two-tell").mkdir()
        yield from self._lived("first alone", [0], self._state / "elder-tells")  # nobody else is there
        yield from self._lived("late alone", [1], None)
        yield from self._lived("late, beside what the first knows", [1], self._state / "elder-tells")
        yield from self._lived("two together", [0, 1], self._state / "two-tell")

    def _lived(self, name: str, numbers: Sequence[int], shared: Path | None) -> Iterator[dict[str, Any]]:
        """Let clusters live slot by slot beside each other.

        Args:
            name: of the row.
            numbers: of the sequences, one a cluster.
            shared: the folder that they share.
        """
        with ExitStack() as stack:
            clusters = []
            for number in numbers:
                folder = self._state / f"{name.replace(' ', '-').replace(',', '')}-{number}"
                how = self._imitation, self._sequences[number], self._nodes, self._speeds, shared, stack
                clusters.append(LearningCluster(folder, *how))
            while not all(cluster.done for cluster in clusters):
                for cluster in clusters:
                    if not cluster.done:
                        cluster.slot()
            for number, cluster in zip(numbers, clusters, strict=True):
                row = {
                    "seed": self._seed,
                    "cluster": name,
                    "sequence": number,
                    "lived": cluster.completion,
                    "DRF": self._under(Drf(), number),
                    "planner": self._under(make_live_policy("planner"), number),
                    "of theirs tried": cluster.tried,
                    "accepted": cluster.taken,
                    "speeds of theirs": cluster.borrowed,
                    "core seconds": cluster.core_seconds,
                }
                print(row, file=sys.stderr, flush=True)
                yield row

    def _under(self, policy: AllocationPolicy, number: int) -> float:
        cluster = SimulatedCluster(self._sequences[number], self._nodes, self._speeds, SLOT, MEASURED)
        return float(run(cluster, policy, NodeRule.SPREAD).mean())


def main() -> int:
    """Let clusters live, print, write build/bench/live_sharing.json."""
    parser = data_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--nodes", type=int, default=12, help="of each cluster, with 8 cores and 8 GPUs (default 12)")
    parser.add_argument("--jobs", type=int, default=30, help="of each sequence (default 30)")
    arguments = parsed(parser)
    torch.set_num_threads(1)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    began = time.monotonic()
    speeds = interpolated(read_points(arguments.data / "dl2_testbed_speed.txt"), 16, 16)
    nodes = parse_cluster(f"{arguments.nodes}x8cpu,8gpu")
    rows = [row for seed in arguments.seeds for row in SeedOfClusters(seed, nodes, arguments.jobs, speeds).rows()]
    print(json.dumps({"seconds": time.monotonic() - began}), file=sys.stderr)
    return finish("live_sharing", rows, list(_goals(rows)), ("numpy", "numba", "torch"))


def _goals(rows: Sequence[dict[str, Any]]) -> Iterator[BenchmarkGoal]:
    lived = {(row["cluster"], row["sequence"], row["seed"]): row["lived"] for row in rows}
    seeds = dict.fromkeys(row["seed"] for row in rows)
    late = [lived["late, beside what the first knows", 1, seed] / lived["late alone", 1, seed] for seed in seeds]
    yield at_most("the late cluster's jobs, with what others know over without", LATE_GAINS, mean(late), "times")
    alone = {0: "first alone", 1: "late alone"}
    both = [lived["two together", at, seed] / lived[name, at, seed] for at, name in alone.items() for seed in seeds]
    yield at_most("two that share, over each alone", 1.0, mean(both), "times")


if __name__ == "__main__":
    as_program(main)
