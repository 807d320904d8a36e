"""This module plays the future of a live cluster under a policy, from its present on, as the live loop would decide."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import itemgetter

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule, which_fit
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.ranges import MOST_EPOCHS
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.cluster.speeds import Grid, Speeds
from dl2_scheduler.live.serve_the_waiting import Waited, count_waiting, key_of
from dl2_scheduler.live.slot_decision import answer
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.simulator import SimulatedCluster

PRESENT = 1
"""The slot of a simulated future that is the present: all jobs come before it, in the order in which they came."""


@dataclass
class SimulatedFuture:
    """A `SimulatedFuture` plays what one policy makes of the present.

    Attributes:
        cluster: the simulated cluster, at first at the present.
        policy: the policy that decides.
        start_seconds: how long a job takes to start there, as the live loop knows it.
        waited: see `waited_at`; left out: nobody has waited before the present.
    """

    cluster: SimulatedCluster
    policy: AllocationPolicy
    start_seconds: float
    waited: Waited = field(default_factory=dict)
    _seen: Snapshot | None = None  # of the last slot that was decided
    _given: Allocation = field(default_factory=Allocation)

    def slot(self, rule: NodeRule, decided: Allocation | None = None) -> None:
        """Play one slot.

        Args:
            rule: the rule by which tasks find their node.
            decided: what has been decided about the slot; None: the policy is asked.
        """
        self._seen = self.cluster.snapshot()
        self._given = decided or self._asked(rule)
        self.waited = count_waiting(self.waited, self._seen, self._given)
        lanes = self.cluster.lanes
        workers, servers = np.zeros_like(lanes.workers), np.zeros_like(lanes.servers)
        for number, state in zip(lanes.present[0].nonzero()[0].tolist(), self._seen.jobs, strict=True):
            grant = self._given.of(state.job.id)
            workers[0, number], servers[0, number] = grant.workers, grant.servers
        lanes.advance(workers, servers)

    def _asked(self, rule: NodeRule) -> Allocation:
        assert self._seen is not None
        return answer(self.policy, self._seen, rule, self.waited, self.start_seconds, explained=False).allocation

    def same_slot(self) -> None:
        """Play one slot in which the jobs that run keep what they have, and those that wait go on waiting."""
        if self._seen is not None:
            self.waited = count_waiting(self.waited, self._seen, self._given)
        lanes = self.cluster.lanes
        lanes.advance(lanes.workers, lanes.servers)

    @property
    def mean_end(self) -> float:
        """In slots from the present on; of jobs that have not ended, the slot that the future has come to."""
        return float(self.cluster.lanes.ends()[0].mean()) - PRESENT

    @property
    def mean_lacking(self) -> float:
        """In slots that jobs take from there on at least, 0 of those that have ended; see `Lanes.lacking`."""
        return float(self.cluster.lanes.lacking()[0].mean())


def speeds_of(jobs: Sequence[Job], fitted: FittedSpeeds) -> Speeds:
    """Return the speeds of the jobs' types, for up to the largest maxima among them."""
    return together(largest(jobs), fitted.grid)


def largest(jobs: Iterable[Job]) -> list[Job]:
    """Return a job of each type that may have as many tasks as any of them; two where some of a type have no servers.

    They come in the order of their types, those with servers first.
    """
    known = list(jobs)
    servers, workers = (max(getattr(job, most) for job in known) for most in ("max_servers", "max_workers"))
    found = {(job.model, not job.has_servers): job for job in known}
    return [
        replace(job, max_servers=servers if job.has_servers else 0, max_workers=workers)
        for _, job in sorted(found.items(), key=itemgetter(0))
    ]


def together(jobs: Sequence[Job], grid: Callable[[Job], Grid]) -> Speeds:
    """Return the speeds of types, those of jobs without servers in the rows for them.

    Args:
        jobs: of `largest`.
        grid: of a job, as `SpeedEstimates.grid`.
    """
    shape = 1 + max(job.max_servers for job in jobs), 1 + max(job.max_workers for job in jobs)
    grids = {job.model: np.zeros(shape) for job in jobs}
    for job in jobs:
        grids[job.model][: job.max_servers + 1] += grid(job)  # where the one kind runs, the other does not
    return Speeds(grids)


def cluster_at(snapshot: Snapshot, speeds: Speeds, cost: ScalingCost, later: Sequence[Job] = ()) -> SimulatedCluster:
    """Make a simulated cluster at the present: all jobs are there, as far as they are, before those that come later.

    Args:
        snapshot: the present; each job has its samples (`observed.with_samples`).
        speeds: of the jobs' types.
        cost: the cost of scaling.
        later: jobs that come in the future; they arrive in seconds from the present on.
    """
    jobs = [*jobs_at(snapshot), *from_present(later, snapshot.slot_seconds)]
    cluster = SimulatedCluster(jobs, snapshot.nodes, speeds, snapshot.slot_seconds, cost)
    cluster.lanes.slot = PRESENT
    cluster.lanes.begin(0, snapshot.jobs)
    return cluster


def jobs_at(snapshot: Snapshot) -> list[Job]:
    """Return the jobs of the present as a simulation needs them that begins in the slot `PRESENT`."""
    between = PRESENT * snapshot.slot_seconds / (len(snapshot.jobs) + 1)
    return [
        replace(
            state.job,
            arrival=number * between,
            epochs=min(state.epochs_done + state.remaining_epochs, MOST_EPOCHS),
            epochs_estimate=state.job.estimate,
        )
        for number, state in enumerate(snapshot.jobs)
    ]


def waited_at(snapshot: Snapshot, waited: Waited) -> Waited:
    """Return how long the jobs of the present have waited, as a future has them: they arrive there at other times.

    Args:
        snapshot: the present.
        waited: see `live.serve_the_waiting`.
    """
    jobs = zip(snapshot.jobs, jobs_at(snapshot), strict=True)
    return {key_of(job): waited.get(key_of(state.job), 0) for state, job in jobs}


def from_present(jobs: Iterable[Job], slot_seconds: float) -> list[Job]:
    """Return jobs that arrive in seconds from the present on as a simulation needs them.

    Args:
        jobs: that come.
        slot_seconds: length of a slot.
    """
    return [replace(job, arrival=PRESENT * slot_seconds + job.arrival) for job in jobs]


def only_fitting(snapshot: Snapshot) -> Snapshot:
    """Leave out jobs that fit no node: they wait until there are others, and nobody knows when."""
    fitting = which_fit((state.job for state in snapshot.jobs), snapshot.nodes)
    return replace(snapshot, jobs=tuple(compress(snapshot.jobs, fitting)))
