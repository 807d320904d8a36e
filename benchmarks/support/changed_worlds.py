"""Worlds that are no longer what a policy has learnt in, and how soon live learning has found its way in them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.support.report import BenchmarkGoal, at_most
from benchmarks.support.served_simulation import LivePolicyJudge, Sequences, ServedSimulation
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.sim.simulator import run

CHANGES = ("nodes", "mix", "slow")
SLOTS = 45
"""That are lived in the changed world."""
BACK_AFTER, BACK_WITHIN = 30, 5.0
"""Slots after which jobs take at most so many per cent longer than under the planner that knows the true speeds."""
ABOVE_DRF, ABOVE_DRF_SLOTS = 10.0, 5
"""Per cent by which jobs may take longer than under DRF for so many slots in a row."""
_NEW_MIX = ("inception-bn", "resnet-50", "seq2seq", "vgg-16")
_SLOWER = "seq2seq"
_JUDGED = 4  # sequences


@dataclass(frozen=True)
class ChangingWorld:
    """A `ChangingWorld` is what a cluster lives in.

    Attributes:
        nodes: of the cluster.
        speeds: of the jobs' types.
        lessons: tell which jobs come.
    """

    nodes: Sequence[Node]
    speeds: Speeds
    lessons: Lessons

    def changed(self, how: str) -> "ChangingWorld":
        """Return the world after a change of `CHANGES`."""
        if how == "nodes":
            return replace(self, nodes=self.nodes[: len(self.nodes) // 2])
        if how == "mix":
            return replace(self, lessons=replace(self.lessons, models=_NEW_MIX))
        return replace(self, speeds=Speeds({**self.speeds.grids, _SLOWER: self.speeds.grid(_SLOWER) / 2}))

    def judge(self) -> LivePolicyJudge:
        """Return what judges policies in this world, on sequences that nobody learns from."""
        sequences = [episode.jobs for episode in self.lessons.validation(_JUDGED)]
        return LivePolicyJudge(sequences, self.nodes, self.speeds)


def lived_change(
    how: str, world: ChangingWorld, folder: Path, slot: int, jobs: Sequence[Job], explore: float
) -> Iterator[dict[str, Any]]:
    """Yield a row for each slot that it has been lived in a changed world, from none on.

    Args:
        how: of `CHANGES`.
        world: the changed one.
        folder: of the cluster, with what it has learnt and seen before.
        slot: in which the world changes.
        jobs: that come from then on.
        explore: part of the cluster that may explore.
    """
    judge = world.judge()
    planner = mean(
        float(run(each, Planner(TrueSpeeds(world.speeds)), NodeRule.SPREAD).mean()) for each in judge.clusters()
    )
    drf = mean(float(run(each, Drf(), NodeRule.SPREAD).mean()) for each in judge.clusters())
    live = ServedSimulation(Sequences([jobs], world.nodes, world.speeds, slot), folder, explore)

    def row(slots: float) -> dict[str, Any]:
        found = {"change": how, "slots since": live.lived, "judged": slots, "planner that knows": planner, "DRF": drf}
        return {**found, "above planner %": 100 * (slots / planner - 1), "above DRF %": 100 * (slots / drf - 1)}

    judged, accepted = judge.slots(live.run_folder), 0
    yield row(judged)
    with closing(live.slots()) as slots:
        for _ in slots:
            if live.accepted > accepted:
                judged, accepted = judge.slots(live.run_folder), live.accepted
                print(row(judged), file=sys.stderr, flush=True)
            yield row(judged)
            if live.lived == SLOTS:
                return


def changed_goals(seed: int, rows: Sequence[Mapping[str, Any]]) -> Iterator[BenchmarkGoal]:
    """Yield the goals of one change.

    Args:
        seed: of the benchmark.
        rows: of `lived_change`.
    """
    name = f"seed {seed}, {rows[0]['change']}"
    back = next(row["above planner %"] for row in reversed(rows) if row["slots since"] <= BACK_AFTER)
    yield at_most(f"{name}: after {BACK_AFTER} slots", BACK_WITHIN, back, "% above the planner that knows")
    worse = [sum(1 for _ in some) for over, some in groupby(row["above DRF %"] > ABOVE_DRF for row in rows[1:]) if over]
    yield at_most(f"{name}: in a row {ABOVE_DRF:g}% above DRF", ABOVE_DRF_SLOTS, max(worse, default=0), "slots")
