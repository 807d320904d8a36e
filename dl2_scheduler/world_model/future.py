"""This module plays the future of a live cluster under a policy, from its present on, as the live loop would decide."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.live.serve_the_waiting import Waited, count_waiting
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
        waited: see `live.serve_the_waiting`, from the present on.
    """

    cluster: SimulatedCluster
    policy: AllocationPolicy
    start_seconds: float
    waited: Waited = field(default_factory=dict)

    def slot(self, rule: NodeRule) -> None:
        """Play one slot; tasks find their node by `rule`."""
        now = self.cluster.snapshot()
        allocation = answer(self.policy, now, rule, self.waited, self.start_seconds).allocation
        self.waited = count_waiting(self.waited, now, allocation)
        self.cluster.apply(allocation)
        self.cluster.finish_slot()

    @property
    def mean_end(self) -> float:
        """In slots from the present on; of jobs that have not ended, the slot that the future has come to."""
        lanes = self.cluster.lanes
        return float(np.where(np.isnan(lanes.finish[0]), lanes.slot, lanes.finish[0]).mean()) - PRESENT


def speeds_of(states: Sequence[JobState], fitted: FittedSpeeds) -> Speeds:
    """Return the speeds of the jobs' types, for up to the largest maxima among them."""
    servers = max(state.job.max_servers for state in states)
    workers = max(state.job.max_workers for state in states)
    each = {state.job.model: replace(state.job, max_servers=servers, max_workers=workers) for state in states}
    return Speeds({model: fitted.grid(job) for model, job in each.items()})


def cluster_at(snapshot: Snapshot, speeds: Speeds, cost: ScalingCost) -> SimulatedCluster:
    """Make a simulated cluster at the present: all jobs are there, as far as they are.

    Args:
        snapshot: the present; each job has its samples (`observed.with_samples`).
        speeds: of the jobs' types.
        cost: the cost of scaling.
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
    cluster = SimulatedCluster(jobs, snapshot.nodes, speeds, snapshot.slot_seconds, cost)
    cluster.lanes.slot = PRESENT
    lanes, by_id = cluster.lanes, {state.job.id: state for state in snapshot.jobs}
    for number, job in enumerate(lanes.jobs[0]):
        state = by_id[job.id]
        lanes.done[0, number], lanes.slots_run[0, number] = state.epochs_done, state.slots_run
        lanes.workers[0, number], lanes.servers[0, number] = state.workers, state.servers
    return cluster
