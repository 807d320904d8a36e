"""This module plays an ensemble of a live cluster's futures, and says when its jobs start and end in them."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Grid
from dl2_scheduler.forecasts.drawn_world import HORIZON, DrawnWorld, WorldDraws
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.world_model.future import PRESENT, SimulatedFuture, cluster_at, only_fitting, speeds_of, waited_at
from dl2_scheduler.world_model.observed import ObservedCluster

MEMBERS = 16
"""Futures of an ensemble, where time suffices."""

_ASKED_AGAIN = 8  # the part of the time played for which nobody is asked where no job comes or ends: an eighth
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ensemble:
    """An `Ensemble` says when the present jobs start and end in simulated futures.

    Attributes:
        present: the snapshot, whose jobs these are.
        starts: seconds from the present on until a job first has tasks that train, (futures, jobs); infinite: it does
            not within the horizon, and NaN: it had started before.
        ends: seconds until it has trained all its epochs, likewise.
    """

    present: Snapshot
    starts: _Floats
    ends: _Floats

    def __len__(self) -> int:
        return len(self.ends)

    def first(self, members: int) -> "Ensemble":
        """Return the first futures alone."""
        return replace(self, starts=self.starts[:members], ends=self.ends[:members])


def play_futures(
    observed: ObservedCluster,
    policy: AllocationPolicy,
    rule: NodeRule,
    seed: int,
    *,
    members: int = MEMBERS,
    seconds: float = np.inf,
    change: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
    decided: Allocation | None = None,
) -> Ensemble | None:
    """Play the futures of the last slot; None: there is no job, or not even one future could be played in time.

    Args:
        observed: what the history has told.
        policy: decides; see `with_known_speeds`.
        rule: the rule by which tasks find their node.
        seed: of what is drawn; whatever is changed, the same seed draws the same for what stays as it is.
        members: how many futures.
        seconds: how long to compute.
        change: makes another present of the present one.
        decided: what has been decided about the present slot; None: the policy is asked.

    Raises:
        Exception: whatever the policy raises.
    """
    if observed.present is None:
        return None
    whole = change(replace(observed.present, slot_seconds=observed.slot_seconds))
    present = only_fitting(whole)
    if not present.jobs:
        return None
    draws, deadline = WorldDraws(observed, whole), time.monotonic() + seconds
    played: list[tuple[_Floats, _Floats]] = []
    for member in range(members):
        future = _future(observed, present, draws.draw((seed, member)), policy)
        found = _played(future, len(present.jobs), rule, decided, deadline if played else deadline + seconds)
        if found is None:
            break
        played.append(found)
    if not played:
        return None
    starts, ends = (np.stack(each) for each in zip(*played, strict=True))
    started = np.array([bool(state.slots_run or state.workers or state.starting) for state in present.jobs])
    starts[:, started] = np.nan
    length = present.slot_seconds
    return Ensemble(present, starts * length + observed.start_seconds, ends * length)


def _future(
    observed: ObservedCluster, present: Snapshot, world: DrawnWorld, policy: AllocationPolicy
) -> SimulatedFuture:
    later = [drawn.job for drawn in world.later]
    speeds = speeds_of([*(state.job for state in present.jobs), *later], observed.fitted)
    cluster = cluster_at(present, speeds, observed.cost, later)
    drawn = [*world.present, *world.later]
    cluster.lanes.speed_factor[0] = [each.factor for each in drawn]
    cluster.lanes.epochs[0] = [each.epochs for each in drawn]
    cluster.lanes.saves[0] = [each.saves for each in drawn]
    return SimulatedFuture(cluster, policy, observed.cost.start, waited_at(present, observed.waited))


def _played(
    future: SimulatedFuture, jobs: int, rule: NodeRule, decided: Allocation | None, deadline: float
) -> tuple[_Floats, _Floats] | None:
    """Return when the first jobs start and end, in slots from the present on; None: time ran out."""
    lanes = future.cluster.lanes
    starts = np.full(jobs, np.inf)
    present, asked = lanes.present, 0
    while np.isnan(lanes.finish[0, :jobs]).any() and lanes.slot < PRESENT + HORIZON:
        if time.monotonic() > deadline:
            return None
        before, present = present, lanes.present
        if (present != before).any() or (lanes.slot - asked) * _ASKED_AGAIN > lanes.slot:
            asked = lanes.slot
            future.slot(rule, decided if asked == PRESENT else None)
        else:
            future.same_slot()
        begun = (lanes.workers[0, :jobs] > 0) & np.isinf(starts)
        starts[begun] = lanes.slot - 1 - PRESENT
    ends = lanes.finish[0, :jobs] - PRESENT
    return starts, np.where(np.isnan(ends), np.inf, ends)


class KnownSpeeds:
    """See `SpeedEstimates`: a simulated future tells them nothing, as it is played with them.

    Args:
        fitted: to what jobs of the cluster reported.
    """

    def __init__(self, fitted: FittedSpeeds):
        self._fitted = fitted

    def observe(self, reports: Iterable[SpeedReport]) -> None:
        """See `SpeedEstimates.observe`: there is nothing to learn."""

    def grid(self, job: Job) -> Grid:
        """See `SpeedEstimates.grid`."""
        return self._fitted.grid(job)


def with_known_speeds(policy: AllocationPolicy, fitted: FittedSpeeds) -> AllocationPolicy:
    """Let a policy that fits speeds know those that a cluster's jobs have reported; others stay as they are.

    One that hopes for more where nobody has reported would hope for ever in a future that teaches it nothing: it is
    played as it decides when it has found out.

    Args:
        policy: a new one.
        fitted: to the reports.
    """
    if isinstance(getattr(policy, "speeds", None), FittedSpeeds):
        vars(policy)["speeds"] = KnownSpeeds(fitted)
    return policy
