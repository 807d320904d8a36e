"""This module simulates the jobs of a history: what the simulator would have said of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from statistics import median

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule, which_fit
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.measured import SpeedFit
from dl2_scheduler.replay.past import PastJob, past_jobs
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.speeds import SpeedPoint, interpolated


@dataclass(frozen=True)
class Predicted:
    """A `Predicted` job has a completion time that was simulated.

    Attributes:
        past: the job, and what it took.
        seconds: the seconds that it takes in the simulator.
    """

    past: PastJob
    seconds: float

    @property
    def error(self) -> float | None:
        """Relative; None: the history does not have its end."""
        return None if self.past.seconds is None else self.seconds / self.past.seconds - 1


def speeds_of(speed_fit: SpeedFit) -> Speeds:
    """Return the speeds as the simulator takes them, with one task more of each role than jobs use."""
    points: dict[str, list[SpeedPoint]] = {}
    for row in speed_fit.rows:
        points.setdefault(row.model, []).append(SpeedPoint(row.servers, row.workers, row.samples_per_second))
    most = max(row.servers for row in speed_fit.rows), max(row.workers for row in speed_fit.rows)
    return interpolated(points, most[0] + 1, most[1] + 1)


def predict(
    slots: Sequence[RecordedSlot], speed_fit: SpeedFit, policy: AllocationPolicy, rule: NodeRule, cost: ScalingCost
) -> list[Predicted]:
    """Simulate the jobs whose types' speeds are known, by arrival, on the nodes of the last slot.

    Jobs that fit no such nodes are left out: nodes may have gone since, or held jobs have taken them.

    Args:
        slots: the slots of the history; at least one.
        speed_fit: its speeds.
        policy: decides.
        rule: the rule by which tasks find their node.
        cost: the cost of scaling.
    """
    nodes, known = slots[-1].snapshot.nodes, [past for past in past_jobs(slots) if speed_fit.knows(past.job)]
    jobs = list(compress(known, which_fit((past.job for past in known), nodes)))
    if not jobs:
        return []
    length = seconds_between(slots)
    cluster = SimulatedCluster([past.job for past in jobs], nodes, speeds_of(speed_fit), length, cost)
    seconds = run(cluster, policy, rule) * length
    return [Predicted(past, float(each)) for past, each in zip(jobs, np.asarray(seconds), strict=True)]


def seconds_between(slots: Sequence[RecordedSlot]) -> float:
    """Return the seconds from a slot's start to the next one's.

    That is a little more than its length: deciding takes time too.
    """
    spans = [
        after.outcome.began - slot.outcome.began
        for slot, after in pairwise(slots)
        if slot.outcome and after.outcome and slot.outcome.began is not None and after.outcome.began is not None
        if after.snapshot.slot == slot.snapshot.slot + 1
    ]
    passed = [span for span in spans if span > 0]  # a clock may have been set back
    return median(passed) if passed else slots[-1].snapshot.slot_seconds
