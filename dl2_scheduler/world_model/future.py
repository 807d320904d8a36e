"""This module plays the future of a live cluster under a policy, from its present on, as the live loop would decide."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.live.serve_the_waiting import Waited, count_waiting
from dl2_scheduler.live.slot_decision import answer_without_reasons
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
        waited: see `live.serve_the_waiting`; left out: nobody has waited before the present.
    """

    cluster: SimulatedCluster
    policy: AllocationPolicy
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
        self._given = decided or answer_without_reasons(self.policy, self._seen, rule, self.waited).allocation
        self.waited = count_waiting(self.waited, self._seen, self._given)
        lanes = self.cluster.lanes
        workers, servers = np.zeros_like(lanes.workers), np.zeros_like(lanes.servers)
        for number, state in zip(lanes.present[0].nonzero()[0].tolist(), self._seen.jobs, strict=True):
            grant = self._given.of(state.job.id)
            workers[0, number], servers[0, number] = grant.workers, grant.servers
        lanes.advance(workers, servers)

    def same_slot(self) -> None:
        """Play one slot in which the jobs that run keep what they have, and those that wait go on waiting."""
        if self._seen is not None:
            self.waited = count_waiting(self.waited, self._seen, self._given)
        lanes = self.cluster.lanes
        lanes.advance(lanes.workers, lanes.servers)

    @property
    def mean_end(self) -> float:
        """In slots from the present on; of jobs that have not ended, the slot that the future has come to."""
        lanes = self.cluster.lanes
        return float(np.where(np.isnan(lanes.finish[0]), lanes.slot, lanes.finish[0]).mean()) - PRESENT


def speeds_of(jobs: Sequence[Job], fitted: FittedSpeeds) -> Speeds:
    """Return the speeds of the jobs' types, for up to the largest maxima among them."""
    servers, workers = max(job.max_servers for job in jobs), max(job.max_workers for job in jobs)
    each = {job.model: replace(job, max_servers=servers, max_workers=workers) for job in jobs}
    return Speeds({model: fitted.grid(job) for model, job in each.items()})


def cluster_at(snapshot: Snapshot, speeds: Speeds, cost: ScalingCost, later: Sequence[Job] = ()) -> SimulatedCluster:
    """Make a simulated cluster at the present: all jobs are there, as far as they are, before those that come later.

    Args:
        snapshot: the present; each job has its samples (`observed.with_samples`).
        speeds: of the jobs' types.
        cost: the cost of scaling.
        later: jobs that come in the future; they arrive in seconds from the present on.
    """
    between = PRESENT * snapshot.slot_seconds / (len(snapshot.jobs) + 1)
    jobs = [
        replace(
            state.job,
            arrival=number * between,
            epochs=state.epochs_done + state.remaining_epochs,
            epochs_estimate=state.job.estimate,
        )
        for number, state in enumerate(snapshot.jobs)
    ]
    jobs += [replace(job, arrival=PRESENT * snapshot.slot_seconds + job.arrival) for job in later]
    cluster = SimulatedCluster(jobs, snapshot.nodes, speeds, snapshot.slot_seconds, cost)
    cluster.lanes.slot = PRESENT
    lanes, by_id = cluster.lanes, {state.job.id: state for state in snapshot.jobs}
    for number, job in enumerate(lanes.jobs[0][: len(by_id)]):
        state = by_id[job.id]
        lanes.done[0, number], lanes.slots_run[0, number] = state.epochs_done, state.slots_run
        lanes.workers[0, number], lanes.servers[0, number] = state.workers, state.servers
    return cluster
