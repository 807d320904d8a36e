"""This module simulates the future of a live cluster under a policy, as far as its history tells."""

import time
from collections.abc import Mapping, Sequence
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

MOST_SLOTS = 500
"""Of a simulated future; jobs that have not ended by then count as if they ended there."""

_PRESENT = 1
"""The slot of a simulated future that is the present: all jobs come before it, in the order in which they came."""

_UNKNOWN_SLOTS = 10.0  # that a job of which nothing is known takes with its minimum


def completion(
    snapshot: Snapshot,
    policies: Sequence[AllocationPolicy],
    fitted: FittedSpeeds,
    cost: ScalingCost,
    rule: NodeRule,
    seconds: float,
) -> tuple[list[float], int]:
    """Return the mean number of slots until the present jobs end, under each policy, and the number of jobs.

    Each slot is decided as the live loop would. No jobs come in this future. All futures are as long: where the time
    runs out in one, all are cut there.

    Args:
        snapshot: the present; see `with_samples`.
        policies: new ones; each plays its own future.
        fitted: to what jobs of the cluster reported.
        cost: the cost of scaling.
        rule: the rule by which tasks find their node.
        seconds: how long to compute, for all policies together.

    Raises:
        UnfitAnswer: a policy's answer cannot be done.
        Exception: whatever a policy raises.
    """
    if not snapshot.jobs:
        return [0.0 for _ in policies], 0
    speeds = speeds_of(snapshot.jobs, fitted)
    futures = [_Future(_cluster(snapshot, speeds, cost), policy) for policy in policies]
    deadline = time.monotonic() + seconds
    while not all(future.cluster.done for future in futures) and futures[0].cluster.lanes.slot < _PRESENT + MOST_SLOTS:
        if time.monotonic() > deadline:
            break
        for future in futures:
            future.slot(rule)
    return [future.mean_end for future in futures], len(snapshot.jobs)


@dataclass
class _Future:
    """A `_Future` plays what one policy makes of the present.

    Attributes:
        cluster: the simulated cluster, at first at the present.
        policy: the policy that decides.
        waited: see `live.serve_the_waiting`, from the present on.
    """

    cluster: SimulatedCluster
    policy: AllocationPolicy
    waited: Waited = field(default_factory=dict)

    def slot(self, rule: NodeRule) -> None:
        now = self.cluster.snapshot()
        allocation = answer(self.policy, now, rule, self.waited).allocation
        self.waited = count_waiting(self.waited, now, allocation)
        self.cluster.apply(allocation)
        self.cluster.finish_slot()

    @property
    def mean_end(self) -> float:
        """In slots from the present on; of jobs that have not ended, the slot that the future has come to."""
        lanes = self.cluster.lanes
        return float(np.where(np.isnan(lanes.finish[0]), lanes.slot, lanes.finish[0]).mean()) - _PRESENT


def with_samples(snapshot: Snapshot, known: Mapping[str, float], fitted: FittedSpeeds) -> Snapshot:
    """Guess the samples of jobs that have not told them, so that a policy which never starts them is found out.

    Args:
        snapshot: as it was seen.
        known: samples of an epoch, by type; a job of another type is taken to end after `_UNKNOWN_SLOTS`.
        fitted: to what jobs of the cluster reported.
    """

    def guessed(job: Job) -> float:
        work = _UNKNOWN_SLOTS * snapshot.slot_seconds * float(fitted.grid(job)[job.min_servers, job.min_workers])
        return known.get(job.model, work / job.estimate)

    states = [
        state
        if state.job.samples_known
        else replace(state, job=replace(state.job, samples_per_epoch=guessed(state.job)))
        for state in snapshot.jobs
    ]
    return replace(snapshot, jobs=tuple(states))


def speeds_of(states: Sequence[JobState], fitted: FittedSpeeds) -> Speeds:
    """Return the speeds of the jobs' types, for up to the largest maxima among them."""
    servers = max(state.job.max_servers for state in states)
    workers = max(state.job.max_workers for state in states)
    each = {state.job.model: replace(state.job, max_servers=servers, max_workers=workers) for state in states}
    return Speeds({model: fitted.grid(job) for model, job in each.items()})


def _cluster(snapshot: Snapshot, speeds: Speeds, cost: ScalingCost) -> SimulatedCluster:
    """Make a simulated cluster at the present: all jobs are there, as far as they are."""
    between = _PRESENT * snapshot.slot_seconds / (len(snapshot.jobs) + 1)
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
    cluster.lanes.slot = _PRESENT
    lanes, by_id = cluster.lanes, {state.job.id: state for state in snapshot.jobs}
    for number, job in enumerate(lanes.jobs[0]):
        state = by_id[job.id]
        lanes.done[0, number], lanes.slots_run[0, number] = state.epochs_done, state.slots_run
        lanes.workers[0, number], lanes.servers[0, number] = state.workers, state.servers
    return cluster
