"""This module lets the graph scheduler's agents propose places, of which a fitted model of speeds picks the best.

Agents imitate a planner, and err: a job that lies badly stays there as long as it lives, and slows others. The model
sees what a proposal costs; it rates a handful of them where a search rates hundreds of changes.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents, Scorer, place_job
from dl2_scheduler.policies.learnt.graph.pod_graphs import cluster_graphs
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, waiting
from dl2_scheduler.policies.placement.local_search import LEAST_GAIN, LocalSearch

_Groups = tuple[list[int], list[int]]


@dataclass(frozen=True)
class CheckedAgents:
    """See `PlacementPolicy`: a job gets the best of what agents of several partitions propose, or waits.

    Attributes:
        agents: that propose.
        search: whose goal, speeds and patience judge the proposals; it does not search.
        proposals: of each partition: the first is the agent's own choice, the others are drawn.
        partitions: that propose: the job's own, and those of the others that have most left.
    """

    agents: GraphAgents
    search: LocalSearch
    proposals: int = 4
    partitions: int = 4

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        watched = Watched(Draft(view), cluster_graphs(view.machines, view.topology))
        rng = np.random.default_rng(zlib.crc32(view.free.tobytes() + view.work_left.tobytes()))
        scorer, draft, order = Scorer(self.agents.arrays), watched.draft, waiting(view, JobOrder.SHORTEST)
        for number, job in enumerate(order):
            best, value, least = None, -np.inf, self.search.least(draft, job)
            for groups in self._proposals(watched, scorer, rng, job, len(order) - number - 1):
                draft.put_all(job, groups)
                worth = self.search.value(draft)
                draft.drop(job)
                if best is None or worth > value + LEAST_GAIN * abs(value):
                    best, value = groups, worth
            if best is not None and value >= least:
                draft.put_all(job, best)
                watched.take(job)
        return draft.placement()

    def _proposals(
        self, watched: Watched, scorer: Scorer, rng: np.random.Generator, job: int, left: int
    ) -> Iterator[_Groups]:
        """Yield places for a job, each once, those of the fullest partition first.

        Args:
            watched: the cluster.
            scorer: of the agents.
            rng: draws.
            job: index of the job.
            left: jobs that are still to be placed after this one.
        """
        draft, seen = watched.draft, set[tuple[tuple[int, ...], ...]]()
        own = draft.view.jobs[job].job.partition
        room = [float(draft.free[pod.groups].sum()) for pod in watched.graphs.pods]
        others = sorted((pod for pod in range(len(room)) if pod != own), key=lambda pod: -room[pod])
        for pod in sorted([own, *others[: self.partitions - 1]], key=lambda pod: room[pod]):
            for number in range(self.proposals):

                def choose(watched: Watched, inputs: TaskInputs, draws: bool = number > 0) -> int:
                    if not inputs.fits.any():
                        return len(inputs.fits) + len(inputs.forwards)  # it waits
                    scores = np.where(inputs.fits, scorer.scores(watched, inputs)[: len(inputs.fits)], -np.inf)
                    return int((scores + rng.gumbel(size=len(scores)) if draws else scores).argmax())

                place_job(watched, job, pod, left, pod != own, choose)
                groups = draft.groups.get(job)
                draft.drop(job)
                if groups is not None and (key := tuple(tuple(sorted(role)) for role in groups)) not in seen:
                    seen.add(key)
                    yield groups
