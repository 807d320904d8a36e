"""This module serves a simulated cluster as `dl2 serve --learn` does: by the loop, the history, learner and guard."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.support.searches import Searches
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, JobId, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.guard.decision import GuardSettings
from dl2_scheduler.guard.process import Guard
from dl2_scheduler.learning.live.process import Learner
from dl2_scheduler.learning.rollout import Clusters, Episode, judged_times
from dl2_scheduler.live.exploration.explorer import Explorer
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.learnt_names import DL2
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster

SLOT = 1200.0
RUN = "run"
"""The run that decides and learns, in the cluster's folder."""
_PATIENCE, _POLL = 3600.0, 0.005  # seconds, for the dreams of a slot: of a minute at most, where a core is free


class Sequences:
    """See `Cluster`: simulated clusters one after the other, which look like one that runs on.

    Args:
        sequences: jobs of each.
        nodes: of all of them.
        speeds: of the jobs' types.
        slot: number of the first one.
    """

    def __init__(self, sequences: Sequence[Sequence[Job]], nodes: Sequence[Node], speeds: Speeds, slot: int = 0):
        self._clusters = [SimulatedCluster(jobs, nodes, speeds, SLOT, MEASURED) for jobs in sequences]
        self._number, self._first, self._offset = 0, slot, slot

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
        return f"{self._first}-{self._number}-{job}"

    def _named(self, reports: Sequence[SpeedReport]) -> tuple[SpeedReport, ...]:
        return tuple(replace(report, job=self._name(report.job)) for report in reports)


@dataclass
class LivePolicyJudge:
    """A `LivePolicyJudge` plays sequences that nobody learns from, with scaling free, at the true speeds.

    Attributes:
        sequences: jobs of each.
        nodes: of the cluster.
        speeds: of the jobs' types.
    """

    sequences: Sequence[Sequence[Job]]
    nodes: Sequence[Node]
    speeds: Speeds

    def slots(self, run: Path) -> float:
        """Return the mean completion time in slots under a run's weights as they are now."""
        weights = load(run)
        assert isinstance(weights, Weights)
        episodes = [Episode(jobs, self.nodes) for jobs in self.sequences]
        return float(judged_times(Clusters(episodes, self.speeds, weights.models), weights).mean())

    def clusters(self) -> Iterator[SimulatedCluster]:
        """Yield a cluster at its start for each sequence, for rules to play in."""
        return (SimulatedCluster(jobs, self.nodes, self.speeds, SLOT) for jobs in self.sequences)


class ServedSimulation:
    """This is `dl2 serve --learn` with a simulated cluster, in its folder; see `commands/driving`.

    No slot has to pass: the loop waits for the dreams of each slot instead.

    Args:
        cluster: that lives.
        folder: of the cluster, with the run that decides and learns in `RUN`.
        explore: part of the cluster that may explore.

    Attributes:
        lived: slots with jobs so far.
        accepted: proposals that were, so far.
        core_seconds: of the dreams so far.
        fallen: why the guard has fallen back; "": it has not.
        explored: part of the cluster that exploring took, of all that was lived.
    """

    def __init__(self, cluster: Sequences, folder: Path, explore: float):
        self._cluster, self._folder, self._explore = cluster, folder, explore
        self.lived, self.accepted, self.core_seconds, self.fallen, self.explored = 0, 0, 0.0, "", 0.0
        self._summaries: set[str] = set()

    @property
    def run_folder(self) -> Path:
        """The run that decides and learns."""
        return self._folder / RUN

    @property
    def comparisons(self) -> int:
        """The comparisons that the guard has made so far."""
        return len(self._summaries)

    def slots(self) -> Iterator[None]:
        """Run until all jobs have ended; yield after each slot that had jobs, once it has dreamt of it.

        Raises:
            TimeoutError: the learner did not dream of a slot.
        """
        policies = Policies(make_live_policy, "drf", self._folder, f"{DL2}{self.run_folder.absolute()}")
        with (
            closing(History(self._folder / HISTORY_FILE)) as history,
            closing(Learner(policies, self._folder, NodeRule.SPREAD, cores=1)) as learner,
            closing(Guard(policies, GuardSettings(), self._folder, NodeRule.SPREAD)) as guard,
        ):
            now = lambda: self._cluster.slot * SLOT  # noqa: E731
            searches = Searches(history)
            explorer = (
                Explorer(self._explore, self._folder, lambda: searches.telling, now=now) if self._explore else None
            )
            observers = (learner, guard, searches) if explorer else (learner, guard)
            loop = SlotLoop(
                self._cluster, policies, NodeRule.SPREAD, history, observers=observers, now=now, explorer=explorer
            )
            while not self._cluster.done:
                outcome = loop.slot()
                if not outcome.jobs:
                    continue
                self.lived += 1
                if self.lived > 1:  # in a cluster's first slot with jobs none has told a speed
                    self._wait(learner, outcome.slot)
                self._summaries |= {guard.summary} - {""}
                self.fallen = self.fallen or policies.trouble
                self.explored = explorer.budget.part_spent if explorer else 0.0
                yield

    def _wait(self, learner: Learner, slot: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while learner.slot < slot:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no dreams of slot {slot} in {_PATIENCE:g} s: {learner.summary}")
            time.sleep(_POLL)
            learner.before(slot)
        self.accepted, self.core_seconds = learner.accepted, learner.core_seconds
