"""Live learning: from a policy that imitates DRF, by the live loop with its history, its learner and its guard.

    python -m benchmarks.live_learning [--sequences 2] [--seed 0] [--data FOLDER]

Jobs arrive, sequence after sequence of 60, on 24 nodes. Only the cluster is simulated: no slot has to pass, and the
loop waits for the learner's dreams of each slot instead. The report says how many seconds of a core they took, which is
how long a real slot has to be. Numbers are mean completion times in slots. Meanwhile and at the end the weights that
decide are judged on the published sequences, which nobody learns from.
"""

import argparse
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.baselines import FOLDER, published_jobs
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, JobId, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.guard.decision import GuardSettings
from dl2_scheduler.guard.process import Guard
from dl2_scheduler.learning.bootstrap import BootstrapSettings, bootstrap
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.live.process import Learner
from dl2_scheduler.learning.rollout import Clusters, Episode, roll_out
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.registry import DL2, make_live_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster

STATE = Path("build/bench/live_learning")
NODES = parse_cluster("24x8cpu,8gpu")
SLOT = 1200.0
GOALS = {50: 31.0, 200: 28.8}
"""Most slots that jobs of the published sequences take, by the number of slots lived."""
LIVED_BELOW_DRF = 0.25
IMITATION = BootstrapSettings(warm_up=0, episodes=6, epochs=8)
JUDGE_EVERY = 50  # slots
_FIRST_EPISODE = 50_000  # imitation has seen those before
_PATIENCE, _POLL = 300.0, 0.005  # seconds, for an update


class Sequences:
    """See `Cluster`: simulated clusters one after the other, which look like one that runs on.

    Args:
        sequences: jobs of each.
        speeds: of their types.
        nodes: of all of them.
    """

    def __init__(self, sequences: Sequence[Sequence[Job]], speeds: Speeds, nodes: Sequence[Node] = NODES):
        self._clusters = [SimulatedCluster(jobs, nodes, speeds, SLOT, MEASURED) for jobs in sequences]
        self._number, self._offset = 0, 0

    @property
    def _now(self) -> SimulatedCluster:
        return self._clusters[self._number]

    @property
    def slot(self) -> int:
        """Number of the present one."""
        return self._offset + self._now.lanes.slot

    @property
    def done(self) -> bool:
        """See `Cluster.done`."""
        return self._number == len(self._clusters) - 1 and self._now.done

    @property
    def ended(self) -> list[float]:
        """Mean completion times in slots of the sequences that have ended."""
        over = [cluster.lanes.completion_times()[0] for cluster in self._clusters if cluster.done]
        return [float(times.mean()) for times in over]

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        if self._now.done:
            self._offset += self._now.lanes.slot
            self._number += 1
        found = self._now.snapshot()
        began = self._offset * SLOT
        jobs = tuple(
            replace(state, job=replace(state.job, id=self._name(state.job.id), arrival=state.job.arrival + began))
            for state in found.jobs
        )
        return replace(found, slot=self.slot, jobs=jobs, reports=self._named(found.reports))

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`."""
        own = {job.id: allocation.of(self._name(job.id)) for job in self._now.lanes.jobs[0]}
        self._now.apply(Allocation(own))

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`."""
        slot, began, found = self.slot, self._offset * SLOT, self._now.finish_slot()
        jobs = [
            replace(job, id=self._name(job.id), finished=None if job.finished is None else job.finished + began)
            for job in found.jobs
        ]
        return SlotOutcome(slot, jobs, self._named(found.reports))

    def _name(self, job: JobId) -> str:
        return f"{self._number}-{job}"

    def _named(self, reports: Sequence[SpeedReport]) -> tuple[SpeedReport, ...]:
        return tuple(replace(report, job=self._name(report.job)) for report in reports)


def main() -> int:
    """Learn, judge, print, write build/bench/live_learning.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=3, help="of 60 jobs, to learn from (default 3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the published sequences and speeds")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"no folder {arguments.data}: give --data, or set DL2_SHARED_DATA")
    torch.set_num_threads(1)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    shutil.rmtree(STATE, ignore_errors=True)
    speeds = interpolated(read_points(arguments.data / "dl2_testbed_speed.txt"), 16, 16)
    document = json.loads((arguments.data / "peer_24_nodes.json").read_text())
    judge = LivePolicyJudge([published_jobs(each) for each in document["sequences"]], speeds)
    lessons = Lessons((NODES,), seed=arguments.seed, cost=MEASURED)
    folder = RunFolder(STATE / "run")
    folder.begin({"seed": arguments.seed, "network": "shared"})
    bootstrap(Drf(), lessons, speeds, IMITATION, folder, lambda *_: None)
    sequences = [episode.jobs for episode in lessons.episodes(_FIRST_EPISODE, arguments.sequences)]
    live = ServedSimulation(Sequences(sequences, speeds), folder.path)
    curve = [judge.row(folder.path, 0)]
    learnt = live.run(lambda: curve.append(judge.row(folder.path, live.lived)))
    rows = [_of_sequence(jobs, speeds, found) for jobs, found in zip(sequences, learnt, strict=True)]
    curve.append({**judge.row(folder.path, live.lived), "core seconds a slot": live.core_seconds / live.lived})
    goals = list(_goals(rows, curve, live))
    return finish("live_learning", [*rows, *curve], goals, ("numpy", "numba", "torch"))


class LivePolicyJudge:
    """The judge plays the published sequences, with scaling free.

    Args:
        sequences: jobs of each.
        speeds: of their types.
    """

    def __init__(self, sequences: Sequence[Sequence[Job]], speeds: Speeds):
        self._sequences, self._speeds = sequences, speeds
        clusters = [SimulatedCluster(jobs, NODES, speeds, SLOT) for jobs in sequences]
        self._drf = mean(float(run(cluster, Drf(), NodeRule.SPREAD).mean()) for cluster in clusters)

    def row(self, path: Path, lived: int) -> dict[str, Any]:
        """Return the row of a run's weights as they are now, after so many slots with jobs."""
        weights = load(path)
        assert isinstance(weights, Weights)
        episodes = [Episode(jobs, NODES) for jobs in self._sequences]
        found = float(roll_out(Clusters(episodes, self._speeds, weights.models), weights).completion.mean())
        row = {
            "slots lived": lived,
            "published sequences": found,
            "DRF": self._drf,
            "below DRF %": _below(found, self._drf),
        }
        print(row, file=sys.stderr, flush=True)
        return row


class ServedSimulation:
    """This is `dl2 serve --learn` with a simulated cluster, in its folder; see `commands/driving`.

    Args:
        cluster: that lives.
        path: of the run that decides and learns.

    Attributes:
        lived: slots with jobs so far.
        accepted: proposals that were, so far.
        core_seconds: of the dreams so far.
        fallen: why the guard has fallen back; "": it has not.
        seconds: that all slots took.
    """

    def __init__(self, cluster: Sequences, path: Path):
        self._cluster, self._name = cluster, f"{DL2}{path.absolute()}"
        self.lived, self.accepted, self.core_seconds, self.fallen, self.seconds = 0, 0, 0.0, "", 0.0
        self._summaries: set[str] = set()

    @property
    def comparisons(self) -> int:
        """The comparisons that the guard has made so far."""
        return len(self._summaries)

    def run(self, judged: Callable[[], None]) -> list[dict[str, Any]]:
        """Run until all jobs have ended; return of each sequence its slots and its mean completion time.

        Args:
            judged: called now and then.
        """
        policies = Policies(make_live_policy, "drf", STATE, self._name)
        began, found = time.monotonic(), []
        with (
            closing(History(STATE / HISTORY_FILE)) as history,
            closing(Learner(policies, STATE, NodeRule.SPREAD, cores=1)) as learner,
            closing(Guard(policies, GuardSettings(), STATE, NodeRule.SPREAD)) as guard,
        ):
            now = lambda: self._cluster.slot * SLOT  # noqa: E731
            loop = SlotLoop(self._cluster, policies, NodeRule.SPREAD, history, observers=(learner, guard), now=now)
            while not self._cluster.done:
                outcome = loop.slot()
                self.lived += bool(outcome.jobs)
                self._wait(learner, outcome.slot if outcome.jobs and self.lived > 1 else -1)  # first, none has told
                self._summaries |= {guard.summary} - {""}
                if len(self._cluster.ended) > len(found):
                    found.append({"slots": self._cluster.slot, "live": self._cluster.ended[-1]})
                    print(found[-1], guard.summary, file=sys.stderr, flush=True)
                if self.lived % JUDGE_EVERY == 0 and outcome.jobs:
                    judged()
        self.fallen, self.seconds = policies.trouble, time.monotonic() - began
        return found

    def _wait(self, learner: Learner, slot: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while learner.slot < slot:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no update after slot {slot}: {learner.summary}")
            time.sleep(_POLL)
            learner.before(slot)
        self.accepted, self.core_seconds = learner.accepted, learner.core_seconds


def _of_sequence(jobs: Sequence[Job], speeds: Speeds, found: dict[str, Any]) -> dict[str, Any]:
    drf = float(run(SimulatedCluster(jobs, NODES, speeds, SLOT, MEASURED), Drf(), NodeRule.SPREAD).mean())
    return {
        "slots so far": found["slots"],
        "lived": found["live"],
        "DRF": drf,
        "below DRF %": _below(found["live"], drf),
    }


def _below(found: float, drf: float) -> float:
    return 100 * (1 - found / drf)


def _goals(
    sequences: Sequence[dict[str, Any]], curve: Sequence[dict[str, Any]], live: ServedSimulation
) -> Iterator[BenchmarkGoal]:
    for slots, most in GOALS.items():
        found = [row["published sequences"] for row in curve if row["slots lived"] >= slots]
        if found:
            yield at_most(f"published sequences after {slots} slots", most, found[0], "slots")
    below = mean(row["below DRF %"] for row in sequences[:2])
    yield at_least("the first two sequences, as they were lived", 100 * LIVED_BELOW_DRF, below, "% below DRF")
    yield at_least("comparisons by the guard", 1, live.comparisons, "")
    yield at_most("times that the guard fell back", 0, int(bool(live.fallen)), "")
    print(f"{live.seconds / live.lived:.1f} seconds a slot, {live.accepted} proposals accepted", file=sys.stderr)


if __name__ == "__main__":
    as_program(main)
