"""This module finds in a history what it costs jobs to start, to be given more, and to end."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.measured import MeasuredSpeeds, SpeedFit
from dl2_scheduler.replay.scalings import ScalingDelay, Scalings
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost

_REMEMBERED = 100  # starts, joins and ends, each: their mean is known well enough, and follows the machine's load


@dataclass(frozen=True)
class Cost:
    """A `Cost` says how long one kind of event takes.

    Attributes:
        seconds: the mean.
        error: the mean's standard error; NaN: it was seen once.
        count: the number of those that were seen to their end.
        cut_off: the number of those that were not.
    """

    seconds: float
    error: float
    count: int
    cut_off: int = 0


@dataclass(frozen=True)
class Costs:
    """`Costs` are what a history says about starts, joins and ends; None: it says nothing.

    Attributes:
        start: from the grant on, until the job trains, anew or from a checkpoint.
        join: from the grant on, until tasks that a running job is given train with the others. Where the policy changed
            its mind before, nothing was seen.
        end: from a job's last step, as its speed lets expect it, until its processes have ended.
    """

    start: Cost | None
    join: Cost | None
    end: Cost | None

    @property
    def start_seconds(self) -> float:
        """The seconds of a start alone; where none was seen, of the one that was measured elsewhere."""
        return MEASURED.start if self.start is None else self.start.seconds

    @property
    def scaling(self) -> ScalingCost:
        """For the simulator, which has no cost of an end: it is part of a start's, if it is over its own error.

        Tasks join in a start's time where none was seen to. What a job does not train in a change is too little to be
        seen in a history: it is what was measured elsewhere, as a start where none was seen.
        """
        if self.start is None:
            return ScalingCost(MEASURED.start, MEASURED.change, self.join.seconds if self.join else MEASURED.join)
        end = self.end.seconds if self.end is not None and self.end.seconds > self.end.error else 0.0
        return ScalingCost(self.start.seconds + end, MEASURED.change, (self.join or self.start).seconds)


class RecentCosts:
    """`RecentCosts` go through a history once, as it grows, and know what its last scalings have cost."""

    def __init__(self) -> None:
        self._speeds = MeasuredSpeeds()
        self._scalings = Scalings(self._speeds.means, _REMEMBERED)

    def observe(self, slot: RecordedSlot) -> None:
        """Take the next slot."""
        self._speeds.observe(slot)
        self._scalings.observe(slot)

    @property
    def scaling(self) -> ScalingCost:
        """The cost of scaling, as far as the history tells."""
        return costs_of(self._scalings).scaling

    @property
    def start_seconds(self) -> float:
        """The seconds that a job takes to start, as far as the history tells."""
        return costs_of(self._scalings).start_seconds


def scaling_costs(slots: Iterable[RecordedSlot], speed_fit: SpeedFit) -> Costs:
    """Return the costs of all types together, from slots whose times are known.

    Args:
        slots: the slots of the history.
        speed_fit: its speeds; the end of a job whose counts were not measured tells nothing.
    """
    speeds = {
        (row.model, row.servers, row.workers): row.samples_per_second for row in speed_fit.rows if row.observations
    }
    scalings = Scalings(speeds)
    for slot in slots:
        scalings.observe(slot)
    return costs_of(scalings)


def costs_of(scalings: Scalings) -> Costs:
    """Return the costs that the delays seen so far have."""
    return Costs(*map(mean_delay, (scalings.starts, scalings.joins, scalings.ends)))


def mean_delay(waits: Collection[ScalingDelay]) -> Cost | None:
    """Return the mean of delays of which some were cut off, by Kaplan and Meier; None: none was seen to its end.

    Without those that were cut off the mean would be too small: a long wait is cut off more often than a short one. The
    part that still waits after each time that was seen is estimated from those that waited as long. The mean is the
    area under that curve up to the longest that was seen: of what would have taken longer nothing is known, and what
    never comes about does not count forever. Its error is Greenwood's; where nothing was cut off, both are the usual
    ones. (Kaplan and Meier, Nonparametric Estimation from Incomplete Observations, 1958.)
    """
    times, ended = np.unique([wait.seconds for wait in waits if wait.seen], return_counts=True)
    count = int(ended.sum())
    if not count:
        return None
    waited = np.sort([wait.seconds for wait in waits])
    at_risk = len(waited) - np.searchsorted(waited, times)
    still = np.cumprod(1 - ended / at_risk)
    areas = np.append(np.cumsum((still[:-1] * np.diff(times))[::-1])[::-1], 0.0)  # from each time on
    left = at_risk - ended
    variance = float((areas**2 * ended / at_risk / np.maximum(left, 1)).sum())
    error = math.sqrt(variance * count / (count - 1)) if count > 1 else math.nan
    return Cost(float(times[0] + areas[0]), error, count, len(waited) - count)
