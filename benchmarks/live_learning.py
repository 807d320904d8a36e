"""Live learning: from a policy that imitates DRF, by the live loop with history, learner, guard and exploration.

    python -m benchmarks.live_learning [--seeds 0 1 2] [--sequences 3] [--explore 2] [--change nodes mix slow]

Jobs arrive, sequence after sequence of 60, on 24 nodes. Only the cluster is simulated: no slot has to pass, and the
loop waits for the learner's dreams of each slot instead. The report says how many seconds of a core they took, which is
how long a real slot has to be. Numbers are mean completion times in slots. Meanwhile and at the end the weights that
decide are judged on the published sequences, which nobody learns from.

With --change the world changes after two sequences, each time from the same weights and history on: half the nodes go,
or jobs of other types come, or the type that takes longest becomes twice as slow. It is judged in the changed world.
"""

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.baselines import published_jobs
from benchmarks.learning import runs_parser
from benchmarks.support.changed_worlds import CHANGES, ChangingWorld, changed_goals, lived_change
from benchmarks.support.published_data import parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from benchmarks.support.served_simulation import RUN, SLOT, LivePolicyJudge, Sequences, ServedSimulation
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.learning.bootstrap import BootstrapSettings, bootstrap
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster

NODES = parse_cluster("24x8cpu,8gpu")
GOALS = {50: 31.0, 200: 28.8}
"""Most slots that jobs of the published sequences take, by the number of slots lived."""
LIVED_BELOW_DRF = 25.0
"""Per cent, of the first two sequences on the mean."""
BEFORE_CHANGE = 2
"""Sequences."""
IMITATION = BootstrapSettings(warm_up=0, episodes=6, epochs=8)
_JUDGE_EVERY = 25  # slots
_FIRST_EPISODE = 50_000  # imitation has seen those before

Row = dict[str, Any]


def main() -> int:
    """Learn, judge, print, write build/bench/live_learning.json, or live_learning_changes.json, after each seed."""
    parser = runs_parser(__doc__, "build/bench/live_learning")
    parser.add_argument("--sequences", type=int, default=3, help="of 60 jobs, to learn from (default 3)")
    parser.add_argument("--explore", type=float, default=2.0, help="per cent of the cluster (default 2)")
    parser.add_argument("--change", nargs="+", default=[], choices=CHANGES, help="let the world change so")
    arguments = parsed(parser)
    torch.set_num_threads(1)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    rows: list[Row] = []
    goals: list[BenchmarkGoal] = []
    status = 0
    for seed in arguments.seeds:
        benchmark = _Seed(seed, arguments)
        measured, promised = benchmark.changes() if arguments.change else benchmark.improvement()
        rows, goals = [*rows, *measured], [*goals, *promised]
        name = "live_learning_changes" if arguments.change else "live_learning"
        status = finish(name, rows, goals, ("numpy", "numba", "torch"))
    return status


class _Seed:
    """This is the benchmark with one seed.

    Args:
        seed: of everything.
        arguments: see `main`.
    """

    def __init__(self, seed: int, arguments: argparse.Namespace):
        self._seed, self._changes, self._count = seed, arguments.change, arguments.sequences
        self._explore: float = arguments.explore / 100
        self._folder: Path = arguments.out / f"seed-{seed}"
        self._speeds = interpolated(read_points(arguments.data / "dl2_testbed_speed.txt"), 16, 16)
        document = json.loads((arguments.data / "peer_24_nodes.json").read_text())
        self._published = [published_jobs(each) for each in document["sequences"]]
        self._lessons = Lessons((NODES,), seed=seed, cost=MEASURED)

    def improvement(self) -> tuple[list[Row], list[BenchmarkGoal]]:
        """Return a row of each sequence that was lived through, then how good the policy was by and by, and goals."""
        judge = LivePolicyJudge(self._published, NODES, self._speeds)
        drf = mean(float(run(cluster, Drf(), NodeRule.SPREAD).mean()) for cluster in judge.clusters())
        live, sequences, cluster = self._begun(self._count)
        curve, lived = [self._row(live, judge, drf)], []
        with closing(live.slots()) as slots:
            for _ in slots:
                if len(cluster.ended) > len(lived):
                    lived.append(self._of_sequence(len(lived), sequences[len(lived)], cluster.ended[-1], live.lived))
                if live.lived % _JUDGE_EVERY == 0:
                    curve.append(self._row(live, judge, drf))
        curve.append(self._row(live, judge, drf))
        return [*lived, *curve], list(self._goals(lived, curve, live))

    def changes(self) -> tuple[list[Row], list[BenchmarkGoal]]:
        """Return rows and goals of each change, after which it goes on living."""
        live, _, cluster = self._begun(BEFORE_CHANGE)
        with closing(live.slots()) as slots:
            for _ in slots:
                pass
        world = ChangingWorld(NODES, self._speeds, self._lessons)
        rows: list[Row] = []
        goals: list[BenchmarkGoal] = []
        for how in self._changes:
            changed = world.changed(how)
            folder = self._folder.with_name(f"{self._folder.name}-{how}")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self._folder, folder)
            (episode,) = changed.lessons.episodes(_FIRST_EPISODE + BEFORE_CHANGE, 1)
            found = list(lived_change(how, changed, folder, cluster.slot, episode.jobs, self._explore))
            rows += [{"seed": self._seed, **row} for row in found]
            goals += changed_goals(self._seed, found)
        return rows, goals

    def _begun(self, count: int) -> tuple[ServedSimulation, list[Sequence[Job]], Sequences]:
        """Imitate DRF; return what lives from then on, the sequences of jobs that will come, and the cluster."""
        shutil.rmtree(self._folder, ignore_errors=True)
        folder = RunFolder(self._folder / RUN)
        folder.begin({"seed": self._seed, "network": "shared"})
        bootstrap(Drf(), self._lessons, self._speeds, IMITATION, folder, lambda *_: None)
        sequences = [episode.jobs for episode in self._lessons.episodes(_FIRST_EPISODE, count)]
        cluster = Sequences(sequences, NODES, self._speeds)
        return ServedSimulation(cluster, self._folder, self._explore), sequences, cluster

    def _row(self, live: ServedSimulation, judge: LivePolicyJudge, drf: float) -> Row:
        found = judge.slots(live.run_folder)
        row = {"seed": self._seed, "slots lived": live.lived, "published sequences": found, "DRF": drf}
        row |= {"below DRF %": _below(found, drf), "accepted": live.accepted}
        row["explored %"] = 100 * live.explored
        row["core seconds a slot"] = live.core_seconds / max(live.lived, 1)
        print(row, file=sys.stderr, flush=True)
        return row

    def _of_sequence(self, number: int, jobs: Sequence[Job], lived: float, slots: int) -> Row:
        cluster = SimulatedCluster(jobs, NODES, self._speeds, SLOT, MEASURED)
        drf = float(run(cluster, Drf(), NodeRule.SPREAD).mean())
        row = {"seed": self._seed, "sequence": number, "slots lived": slots, "lived": lived, "DRF": drf}
        row["below DRF %"] = _below(lived, drf)
        print(row, file=sys.stderr, flush=True)
        return row

    def _goals(self, lived: Sequence[Row], curve: Sequence[Row], live: ServedSimulation) -> Iterator[BenchmarkGoal]:
        name = f"seed {self._seed}"
        for slots, most in GOALS.items():
            found = [row["published sequences"] for row in curve if row["slots lived"] >= slots]
            if found:
                yield at_most(f"{name}: published sequences after {slots} slots", most, found[0], "slots")
            else:
                print(f"{name}: nothing was measured after {slots} slots: give more --sequences", file=sys.stderr)
        below = mean(row["below DRF %"] for row in lived[:2])
        yield at_least(f"{name}: the first two sequences, as they were lived", LIVED_BELOW_DRF, below, "% below DRF")
        yield at_most(f"{name}: of the cluster, that exploring took", 100 * self._explore, 100 * live.explored, "%")
        yield at_least(f"{name}: comparisons by the guard", 1, live.comparisons, "")
        yield at_most(f"{name}: times that the guard fell back", 0, int(bool(live.fallen)), "")


def _below(found: float, drf: float) -> float:
    return 100 * (1 - found / drf)


if __name__ == "__main__":
    as_program(main)
