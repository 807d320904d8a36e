"""This module compares policies by the futures that they make of a live cluster's present."""

import time
from collections.abc import Sequence

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.live.serve_the_waiting import NOBODY, Waited
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.sim.lanes import ScalingCost, comparable
from dl2_scheduler.world_model.future import PRESENT, SimulatedFuture, cluster_at, speeds_of, waited_at

MOST_SLOTS = 500
"""Of a simulated future."""


def completion(
    snapshot: Snapshot,
    policies: Sequence[AllocationPolicy],
    fitted: FittedSpeeds,
    cost: ScalingCost,
    rule: NodeRule,
    seconds: float,
    waited: Waited = NOBODY,
) -> tuple[list[float], int]:
    """Return the mean number of slots until the present jobs end, under each policy, and the number of jobs.

    Each slot is decided as the live loop would. No jobs come in this future. All futures are as long: where the time
    runs out in one, all are cut there, and what jobs lack then counts as `comparable` has it.

    Args:
        snapshot: the present; see `world_model.observed.with_samples`.
        policies: new ones; each plays its own future.
        fitted: to what jobs of the cluster reported.
        cost: the cost of scaling.
        rule: the rule by which tasks find their node.
        seconds: how long to compute, for all policies together.
        waited: how long jobs have waited before the present; left out: nobody has.

    Raises:
        UnfitAnswer: a policy's answer cannot be done.
        Exception: whatever a policy raises.
    """
    if not snapshot.jobs:
        return [0.0 for _ in policies], 0
    speeds = speeds_of([state.job for state in snapshot.jobs], fitted)
    waits = waited_at(snapshot, waited)
    futures = [SimulatedFuture(cluster_at(snapshot, speeds, cost), each, cost.start, waits) for each in policies]
    deadline = time.monotonic() + seconds
    while not all(future.cluster.done for future in futures) and futures[0].cluster.lanes.slot < PRESENT + MOST_SLOTS:
        if time.monotonic() > deadline:
            break
        for future in futures:
            future.slot(rule)
    ends = np.array([(future.mean_end, future.mean_lacking) for future in futures])
    return comparable(*ends.T).tolist(), len(snapshot.jobs)
