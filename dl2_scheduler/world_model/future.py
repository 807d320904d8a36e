"""This module plays the future of a live cluster under a policy, from its present on, as the live loop would decide."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
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
        waited: see `live.serve_the_waiting`, from the present on.
    """

    cluster: SimulatedCluster
    policy: AllocationPolicy
    waited: Waited = field(default_factory=dict)

    def slot(self, rule: NodeRule) -> None:
        """Play one slot; tasks find their node by `rule`."""
        now = self.cluster.snapshot()
        allocation = answer(self.policy, now, rule, self.waited).allocation
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
    return Speeds({model: fitted.grid(job) for model, job in largest(state.job for state in states).items()})


def largest(jobs: Iterable[Job]) -> dict[str, Job]:
    """Return a job of each type that may have as many tasks as any of them."""
    known = list(jobs)
    servers, workers = (max(getattr(job, most) for job in known) for most in ("max_servers", "max_workers"))
    return {job.model: replace(job, max_servers=servers, max_workers=workers) for job in known}


def cluster_at(snapshot: Snapshot, speeds: Speeds, cost: ScalingCost) -> SimulatedCluster:
    """Make a simulated cluster at the present: all jobs are there, as far as they are.

    Args:
        snapshot: the present; each job has its samples (`observed.with_samples`).
        speeds: of the jobs' types.
        cost: the cost of scaling.
    """
    cluster = SimulatedCluster(jobs_at(snapshot), snapshot.nodes, speeds, snapshot.slot_seconds, cost)
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
            epochs=state.epochs_done + state.remaining_epochs,
            epochs_estimate=state.job.estimate,
        )
        for number, state in enumerate(snapshot.jobs)
    ]
