"""This module lets the graph scheduler's agents propose places, of which a fitted model of speeds picks the best.

Agents imitate a planner, and err: a job that lies badly stays there as long as it lives, and slows others. The model
sees what a proposal costs; it rates a handful of them where a search rates hundreds of changes.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.learnt.graph.agent_inputs import Watched
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents, Scorer
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.learnt.graph.proposals import Groups, Proposals
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, waiting
from dl2_scheduler.policies.placement.local_search import LEAST_GAIN, LocalSearch


@dataclass(frozen=True)
class CheckedAgents:
    """See `PlacementPolicy`: a job gets the best of what agents of several partitions propose, or waits.

    Attributes:
        agents: that propose.
        search: whose goal, speeds and patience judge the proposals; it does not search.
        proposals: of each partition: the first is the agent's own choice, the others are drawn.
        partitions: that propose: the job's own, and those of the others that have most left.
        ranked: see `Proposals`.
    """

    agents: GraphAgents
    search: LocalSearch
    proposals: int = 4
    partitions: int = 4
    ranked: int = 24

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        watched = Watched(Draft(view), cluster_graphs(view.machines, view.topology))
        rng = np.random.default_rng(zlib.crc32(view.free.tobytes() + view.work_left.tobytes()))
        scorer, draft, order = Scorer(self.agents.arrays), watched.draft, waiting(view, JobOrder.SHORTEST)
        worth = self.search.value(draft)
        for number, job in enumerate(order):
            proposed = self._proposals(watched, scorer, rng, job, len(order) - number - 1)
            if not proposed:
                continue
            least = self.search.least(draft, job, worth)
            draft.put_all(job, proposed[0])
            values = self.search.values_at(
                draft, job, np.array([[*workers, *servers] for workers, servers in proposed])
            )
            draft.drop(job)
            best = 0
            for row, value in enumerate(values):
                if value > values[best] + LEAST_GAIN * abs(values[best]):
                    best = row
            if values[best] >= least:
                draft.put_all(job, proposed[best])
                watched.take(job)
                worth = float(values[best])
        return draft.placement()

    def _proposals(
        self, watched: Watched, scorer: Scorer, rng: np.random.Generator, job: int, left: int
    ) -> Sequence[Groups]:
        """Return places for a job, each once, those of the fullest partition first.

        Args:
            watched: the cluster.
            scorer: of the agents.
            rng: draws.
            job: index of the job.
            left: jobs that are still to be placed after this one.
        """
        draft = watched.draft
        own = draft.view.jobs[job].job.partition
        room = [float(draft.free[pod.groups].sum()) for pod in watched.graphs.pods]
        others = sorted((pod for pod in range(len(room)) if pod != own), key=lambda pod: -room[pod])
        pods = sorted([own, *others[: self.partitions - 1]], key=lambda pod: room[pod])
        return Proposals(watched, scorer, rng, self.ranked).of(job, pods, self.proposals, left)
