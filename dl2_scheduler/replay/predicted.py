"""This module simulates the jobs of a history: what the simulator would have said of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from statistics import median

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule, which_fit
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.measured import SpeedFit
from dl2_scheduler.replay.past import PastJob, PastJobs
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


class LivedSlots:
    """`LivedSlots` go through a history once, slot by slot, and know what a simulation of its jobs needs.

    Attributes:
        last: the last slot; None: there is none yet.
        jobs: that came.
    """

    def __init__(self) -> None:
        self.last: RecordedSlot | None = None
        self.jobs = PastJobs()
        self._passed: list[float] = []

    def observe(self, slot: RecordedSlot) -> None:
        """Take the next slot."""
        self.jobs.observe(slot)
        if self.last is not None and (passed := _seconds_to(self.last, slot)) > 0:  # a clock may have been set back
            self._passed.append(passed)
        self.last = slot

    @property
    def slot_seconds(self) -> float:
        """The seconds from a slot's start to the next one's; see `seconds_between`."""
        assert self.last is not None
        return median(self._passed) if self._passed else self.last.snapshot.slot_seconds


def predict(
    slots: Iterable[RecordedSlot], speed_fit: SpeedFit, policy: AllocationPolicy, rule: NodeRule, cost: ScalingCost
) -> list[Predicted]:
    """Simulate the jobs whose types' speeds are known, by arrival, on the nodes of the last slot.

    Args:
        slots: the slots of the history; at least one.
        speed_fit: its speeds.
        policy: decides.
        rule: the rule by which tasks find their node.
        cost: the cost of scaling.
    """
    lived = LivedSlots()
    for slot in slots:
        lived.observe(slot)
    return predict_lived(lived, speed_fit, policy, rule, cost)


def predict_lived(
    lived: LivedSlots, speed_fit: SpeedFit, policy: AllocationPolicy, rule: NodeRule, cost: ScalingCost
) -> list[Predicted]:
    """See `predict`. Jobs that fit no such nodes are left out: nodes may have gone since, or held jobs have taken them.

    Args:
        lived: of the history, with at least one slot.
        speed_fit: its speeds.
        policy: decides.
        rule: the rule by which tasks find their node.
        cost: the cost of scaling.
    """
    assert lived.last is not None
    nodes, known = lived.last.snapshot.nodes, [past for past in lived.jobs.known if speed_fit.knows(past.job)]
    jobs = list(compress(known, which_fit((past.job for past in known), nodes)))
    if not jobs:
        return []
    length = lived.slot_seconds
    cluster = SimulatedCluster([past.job for past in jobs], nodes, speeds_of(speed_fit), length, cost)
    seconds = run(cluster, policy, rule) * length
    return [Predicted(past, float(each)) for past, each in zip(jobs, np.asarray(seconds), strict=True)]


def seconds_between(slots: Sequence[RecordedSlot]) -> float:
    """Return the seconds from a slot's start to the next one's.

    That is a little more than its length: deciding takes time too.
    """
    passed = [span for slot, after in pairwise(slots) if (span := _seconds_to(slot, after)) > 0]
    return median(passed) if passed else slots[-1].snapshot.slot_seconds


def _seconds_to(slot: RecordedSlot, after: RecordedSlot) -> float:
    """Return the seconds from a slot's start to that of the next one; 0: it is another one, or nobody knows."""
    began, later = (each.outcome.began if each.outcome else None for each in (slot, after))
    follows = after.snapshot.slot == slot.snapshot.slot + 1
    return later - began if follows and began is not None and later is not None else 0.0
