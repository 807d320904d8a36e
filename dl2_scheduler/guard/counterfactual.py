"""The future of a live cluster under a policy, as far as its history tells: simulated from the present state on."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dl2_scheduler.cluster.policy import AllocationPolicy
from dl2_scheduler.cluster.room import NodeRule, Room
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.speed_fit import FittedSpeeds
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster

MOST_SLOTS = 500
"""Of a simulated future; jobs that have not ended by then count as if they ended there."""


def completion(
    snapshot: Snapshot,
    policies: Sequence[AllocationPolicy],
    fitted: FittedSpeeds,
    rule: NodeRule,
    seconds: float,
) -> tuple[list[float], int]:
    """Mean slots until the present jobs end, under each policy, and how many jobs were looked at.

    No jobs come in this future, and scaling costs what it was measured to. Jobs whose samples are not known yet are
    left out. All futures are as long: where the time runs out in one, all are cut there.

    Args:
        snapshot: the present.
        policies: new ones; each plays its own future.
        fitted: to what jobs of the cluster reported.
        rule: by which tasks find their node.
        seconds: of computing, for all policies together.

    Raises:
        Exception: whatever a policy raises.
    """
    states = [state for state in snapshot.jobs if state.job.samples_known]
    if not states:
        return [0.0 for _ in policies], 0
    speeds = speeds_of(states, fitted)
    futures = [_future(snapshot, states, speeds) for _ in policies]
    deadline = time.monotonic() + seconds
    while not all(future.done for future in futures) and futures[0].lanes.slot < MOST_SLOTS:
        if time.monotonic() > deadline:
            break
        for future, policy in zip(futures, policies, strict=True):
            now = future.snapshot()
            future.apply(policy.allocate(now, Room(now, rule)))
            future.finish_slot()
    ends = [np.where(np.isnan(future.lanes.finish[0]), future.lanes.slot, future.lanes.finish[0]) for future in futures]
    return [float(end.mean()) for end in ends], len(states)


def speeds_of(states: Sequence[JobState], fitted: FittedSpeeds) -> Speeds:
    """Of the jobs' types, for up to the largest maxima among them."""
    servers = max(state.job.max_servers for state in states)
    workers = max(state.job.max_workers for state in states)
    each = {state.job.model: replace(state.job, max_servers=servers, max_workers=workers) for state in states}
    return Speeds({model: fitted.grid(job) for model, job in each.items()})


def _future(snapshot: Snapshot, states: Sequence[JobState], speeds: Speeds) -> SimulatedCluster:
    """At the present: all jobs are there, as far as they are."""
    jobs = [
        replace(
            state.job,
            arrival=0.0,
            epochs=state.epochs_done + state.remaining_epochs,
            epochs_estimate=state.job.estimate,
        )
        for state in states
    ]
    cluster = SimulatedCluster(jobs, snapshot.nodes, speeds, snapshot.slot_seconds, MEASURED)
    lanes, by_id = cluster.lanes, {state.job.id: state for state in states}
    for number, job in enumerate(lanes.jobs[0]):
        state = by_id[job.id]
        lanes.done[0, number], lanes.slots_run[0, number] = state.epochs_done, state.slots_run
        lanes.workers[0, number], lanes.servers[0, number] = state.workers, state.servers
    return cluster
