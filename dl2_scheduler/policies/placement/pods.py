"""This module places where a cluster is divided: each partition has a scheduler, which keeps a job or forwards it.

A job belongs to the partition that it was submitted to. All of its tasks lie in one partition: its own, or the one that
it was forwarded to, once. (The graph scheduler's paper forwards task by task; a job across two partitions would
exchange over the network's narrowest links.)
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Ints, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.greedy_fill import GroupRule, JobOrder, fill, waiting
from dl2_scheduler.policies.placement.local_search import LEAST_GAIN, Change, LocalSearch

_DIGITS = 6  # of amounts that are the same, rounding apart


def groups_of_pods(machines: Machines, topology: Topology) -> list[Ints]:
    """Return the groups of each partition."""
    pods = topology.partition_of[machines.node_of]
    return [np.flatnonzero(pods == pod) for pod in range(topology.partitions)]


def forwarded_to(draft: Draft, pods: Sequence[Ints], own: int) -> Iterator[int]:
    """Yield the partition that a job belongs to, and the one of the others that has most left, by parts of capacity.

    Args:
        draft: as far as it is.
        pods: the groups of each partition.
        own: the job's.
    """
    yield own
    capacity = draft.view.machines.capacity
    left = [float((draft.free[pod].sum(axis=0) / np.maximum(capacity[pod].sum(axis=0), 1e-12)).sum()) for pod in pods]
    others = [pod for pod in range(len(pods)) if pod != own]
    if others:
        yield max(others, key=lambda pod: left[pod])


@dataclass(frozen=True)
class PodFill:
    """See `PlacementPolicy`: a rule decides in each partition, which forwards a job that does not fit.

    Attributes:
        rule: of the groups.
        order: of the jobs.
        skipping: a job that does not fit lets the next one of its partition try; else all of these behind it wait, too.
    """

    rule: GroupRule
    order: JobOrder = JobOrder.ARRIVAL
    skipping: bool = False

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        draft, blocked = Draft(view), set()
        pods = groups_of_pods(view.machines, view.topology)
        for job in waiting(view, self.order):
            own = view.jobs[job].job.partition
            if own not in blocked and not self._fill(draft, pods, job, own) and not self.skipping:
                blocked.add(own)
        return draft.placement()

    def _fill(self, draft: Draft, pods: Sequence[Ints], job: int, own: int) -> bool:
        for pod in forwarded_to(draft, pods, own):
            draft.within[job] = pods[pod]
            if fill(draft, job, self.rule):
                return True
        return False


@dataclass(frozen=True)
class PodSearch(LocalSearch):
    """See `PlacementPolicy`: a local search for each job in every partition; the one with the best goal gets it.

    Of equally good ones it is the fullest: that leaves room for jobs to come, and is worth 4% of the completion times
    over the job's own.
    """

    def _put(self, draft: Draft, job: int) -> bool:
        pods = groups_of_pods(draft.view.machines, draft.view.topology)
        best: tuple[float, Ints, tuple[list[int], list[int]]] | None = None
        for pod in sorted(pods, key=lambda pod: float(draft.free[pod].sum())):
            draft.within[job] = pod
            if super()._put(draft, job):
                value = self.value(draft)
                if best is None or value > best[0] + LEAST_GAIN * abs(best[0]):
                    best = value, pod, draft.groups[job]
                draft.drop(job)
        if best is None:
            return False
        draft.within[job] = best[1]
        draft.put_all(job, best[2])
        return True

    def _moves(self, draft: Draft, job: int) -> Iterator[Change]:
        pod = draft.within[job]
        draft.within[job] = unlike(draft, pod, job)
        yield from super()._moves(draft, job)
        draft.within[job] = pod


def unlike(draft: Draft, groups: Ints, job: int) -> Ints:
    """Return groups, of those alike the first: of like sockets, with the same beside them, behind the same switches.

    They also have as much left, which on a live cluster others take, too, and the job's tasks may go to each of them.

    Args:
        draft: says what lies where.
        groups: of which.
        job: whose tasks may go to some groups alone.
    """
    seen: dict[Hashable, int] = {}
    view = draft.view
    left = np.round(draft.free, _DIGITS).tolist()
    may = [tuple(roles) for roles in np.stack([view.may(job, role) for role in (WORKER, SERVER)], axis=1).tolist()]
    for group in groups.tolist():
        node = int(view.machines.node_of[group])
        beside = tuple(
            (view.machines.sockets[other], other == group, tuple(draft.tasks[other]), tuple(left[other]), may[other])
            for other in view.machines.groups_of[node]
        )
        seen.setdefault((beside, view.topology.switches_of[node]), group)
    return np.array(list(seen.values()), dtype=np.int64)
