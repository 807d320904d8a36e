"""What it costs the jobs of a live cluster to start, to be given more and to end, from its history."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.policy import JobOutcome, Outcome
from dl2_scheduler.cluster.snapshot import Grant, JobId, JobState
from dl2_scheduler.live.slots import RecordedSlot
from dl2_scheduler.replay.measured import Counts, Table
from dl2_scheduler.replay.past import trained_all
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost

Key = tuple[JobId, float]
"""A job's name and arrival: a name may be used again."""


@dataclass(frozen=True)
class Cost:
    """Of one kind of event.

    Attributes:
        seconds: mean.
        error: its standard error; NaN: it was seen once.
        count: of what was seen.
    """

    seconds: float
    error: float
    count: int


@dataclass(frozen=True)
class Costs:
    """What a history says; None: nothing.

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
    def scaling(self) -> ScalingCost:
        """For the simulator, which has no cost of an end: it is part of a start's, if it is over its own error.

        Tasks join in a start's time where none was seen to. What a job does not train in a change is too little to be
        seen in a history: it is what was measured elsewhere, as a start where none was seen.
        """
        if self.start is None:
            return ScalingCost(MEASURED.start, MEASURED.change, self.join.seconds if self.join else MEASURED.join)
        end = self.end.seconds if self.end is not None and self.end.seconds > self.end.error else 0.0
        return ScalingCost(self.start.seconds + end, MEASURED.change, (self.join or self.start).seconds)


def scaling_costs(slots: Sequence[RecordedSlot], table: Table) -> Costs:
    """Of all types together, from slots whose times are known.

    Args:
        slots: of the history.
        table: of its speeds; the end of a job whose counts were not measured tells nothing.
    """
    speeds = {(row.model, row.servers, row.workers): row.samples_per_second for row in table.rows if row.observations}
    return Costs(_cost(_starts(slots)), _cost(_joins(slots)), _cost(_ends(slots, speeds)))


def _cost(found: Iterator[float]) -> Cost | None:
    seconds = list(found)
    if not seconds:
        return None
    error = float(np.std(seconds, ddof=1)) / len(seconds) ** 0.5 if len(seconds) > 1 else math.nan
    return Cost(float(np.mean(seconds)), error, len(seconds))


@dataclass(frozen=True)
class _Lived:
    """A job's slot.

    Attributes:
        began: seconds since the cluster began.
        state: at its start.
        reported: whether the job had just told how far it is.
        grant: for it.
        done: what became of it.
    """

    began: float
    state: JobState
    reported: bool
    grant: Grant
    done: JobOutcome

    @property
    def key(self) -> Key:
        return self.state.job.id, self.state.job.arrival

    @property
    def before(self) -> Counts:
        return self.state.servers, self.state.workers

    @property
    def granted(self) -> Counts:
        return self.grant.servers, self.grant.workers


def _lived(slots: Sequence[RecordedSlot]) -> Iterator[_Lived]:
    for slot in slots:
        outcome: Outcome | None = slot.outcome
        if outcome is None or outcome.began is None:
            continue
        done = {each.id: each for each in outcome.jobs}
        reported = {report.job for report in slot.snapshot.reports}
        for state in slot.snapshot.jobs:
            name = state.job.id
            yield _Lived(outcome.began, state, name in reported, slot.allocation.of(name), done[name])


def _starts(slots: Sequence[RecordedSlot]) -> Iterator[float]:
    began: dict[Key, float] = {}
    for lived in _lived(slots):
        if lived.state.workers or not all(lived.granted):
            began.pop(lived.key, None)
            continue
        if not lived.state.starting:  # else it was started in a slot before, or before the history begins
            began.setdefault(lived.key, lived.began)
        since = lived.done.since
        if lived.key in began and since is not None and since >= began[lived.key]:
            yield since - began.pop(lived.key)


def _joins(slots: Sequence[RecordedSlot]) -> Iterator[float]:
    asked: dict[Key, tuple[float, Counts]] = {}
    for lived in _lived(slots):
        more = any(wanted > had > 0 for wanted, had in zip(lived.granted, lived.before, strict=True))
        began, wanted = asked.pop(lived.key, (lived.began, lived.granted))
        if not more or not all(lived.granted):
            continue
        if wanted != lived.granted:
            began = lived.began
        since, had = lived.done.since, (lived.done.servers, lived.done.workers)
        if had == lived.granted and lived.done.finished is None:
            if since is not None and since >= began:
                yield since - began
        else:
            asked[lived.key] = began, lived.granted


def _ends(slots: Sequence[RecordedSlot], speeds: Mapping[tuple[str, int, int], float]) -> Iterator[float]:
    expected: dict[Key, float] = {}
    for lived in _lived(slots):
        state, done = lived.state, lived.done
        if lived.reported:
            expected.pop(lived.key, None)
            speed = speeds.get((state.job.model, *lived.before), 0.0)
            if speed and lived.granted == lived.before and state.job.samples_known:
                left = state.job.epochs - state.epochs_done
                expected[lived.key] = lived.began + left * state.job.samples_per_epoch / speed
        if trained_all(state, done) and lived.key in expected and done.finished is not None:
            yield done.finished - expected.pop(lived.key)
