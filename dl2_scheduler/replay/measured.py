"""This module finds the speeds of a live cluster's jobs in its history, and fits them where nothing was measured."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import JobOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobId, JobState, SpeedReport
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds

Counts = tuple[int, int]
"""Servers and workers."""

MeasuredAt = tuple[str, int, int]
"""Type, servers and workers."""

_LONGEST_SLOT, _LATE_SECONDS = 10.0, 60.0  # times its length, and seconds, that a slot may take on a busy machine
_MOST_COUNTS = 64  # of a role: with more of both, a table would have more rows of a type than can be interpolated
_LEAST_CONFIGURATIONS = 3  # from which on leaving one out says something about the fit


@dataclass(frozen=True)
class MeasuredSpeed:
    """A `MeasuredSpeed` says how fast one job trained in one slot, in all of which it had the same counts.

    Attributes:
        job: its id.
        model: its type.
        servers: that it had.
        workers: that it had.
        samples_per_second: the samples a second of all workers together; 0: it got no further, or not by as much as it
            tells. What it then trained is in the speed of a later slot, so that a slot counts with its seconds.
        seconds: for which that was measured.
    """

    job: JobId
    model: str
    servers: int
    workers: int
    samples_per_second: float
    seconds: float


@dataclass
class MeanSpeed:
    """A `MeanSpeed` is what one configuration trained in all slots in which it was measured, over their time.

    Attributes:
        samples_per_second: the sum of the samples over the sum of the seconds; 0: nothing was trained yet.
        slots: in which it was measured.
        seconds: of these slots.
    """

    samples_per_second: float = 0.0
    slots: int = 0
    seconds: float = 0.0
    _squares: float = 0.0  # of what the slots' speeds are off the mean, times their seconds

    def add(self, measured: MeasuredSpeed) -> None:
        """Take one slot more (West, Updating Mean and Variance Estimates, 1979)."""
        self.slots += 1
        self.seconds += measured.seconds
        off = measured.samples_per_second - self.samples_per_second
        self.samples_per_second += off * measured.seconds / self.seconds
        self._squares += measured.seconds * off * (measured.samples_per_second - self.samples_per_second)

    @property
    def error(self) -> float:
        """The relative standard error; NaN: it was measured once.

        Of the speeds of slots of different lengths, those of the longer ones vary less. Where jobs tell how far they
        are in coarse steps it is too large: what one slot lacks, the next one has.
        """
        if self.slots < 2 or not self.samples_per_second:
            return float("nan")
        return math.sqrt(max(self._squares, 0.0) / self.seconds / (self.slots - 1)) / self.samples_per_second


@dataclass(frozen=True)
class SpeedRow:
    """A `SpeedRow` is the speed of one type with one configuration, measured or fitted.

    Attributes:
        model: type of the jobs.
        servers: the servers of a job.
        workers: the workers of a job.
        samples_per_second: the samples a second of all workers together.
        observations: slots in which it was measured; 0: it was fitted.
        relative_error: standard error of the mean of what was measured; of what was fitted, or measured once, the
            type's cross-validated error. NaN: not known.
    """

    model: str
    servers: int
    workers: int
    samples_per_second: float
    observations: int
    relative_error: float


@dataclass(frozen=True)
class TypeFit:
    """A `TypeFit` says how well a type is known.

    Attributes:
        model: the type.
        configurations: the number of configurations that were measured.
        observations: slots in all.
        error: root of the mean square of the relative error where each configuration is fitted to the others; NaN:
            there are too few to tell.
    """

    model: str
    configurations: int
    observations: int
    error: float


@dataclass(frozen=True)
class SpeedFit:
    """A `SpeedFit` is what a history says about speeds.

    Attributes:
        rows: the rows of every type, servers and workers up to its jobs' maxima; of large ones not every count.
        types: how well each type is known, by name; one that was measured with servers and without is there twice.
    """

    rows: tuple[SpeedRow, ...]
    types: tuple[TypeFit, ...]

    def knows(self, job: Job) -> bool:
        """Return whether a job's type was measured, with servers or without, as it runs."""
        return any((row.model, row.servers > 0) == (job.model, job.has_servers) for row in self.rows)


def fit_speeds(slots: Iterable[RecordedSlot]) -> SpeedFit:
    """Return the speeds of all types that were measured, fitted where a configuration was not.

    Raises:
        BadInput: none was.
    """
    fitter = SpeedFitter()
    for slot in slots:
        fitter.observe(slot)
    return fitter.fit()


class SpeedFitter:
    """A `SpeedFitter` goes through a history once, slot by slot, and then fits its speeds."""

    def __init__(self) -> None:
        self._observed: dict[tuple[str, bool], dict[Counts, MeanSpeed]] = {}  # by type, and whether it has servers
        self._largest: dict[tuple[str, bool], Job] = {}

    def observe(self, slot: RecordedSlot) -> None:
        """Take the next slot."""
        for measured in measured_speeds(slot):
            known = self._observed.setdefault((measured.model, measured.servers > 0), {})
            known.setdefault((measured.servers, measured.workers), MeanSpeed()).add(measured)
        for state in slot.snapshot.jobs:
            key = state.job.model, state.job.has_servers
            self._largest[key] = _larger(self._largest.get(key, state.job), state.job)

    def fit(self) -> SpeedFit:
        """Return the speeds of all types that were measured, fitted where a configuration was not.

        Raises:
            BadInput: none was.
        """
        rows: list[SpeedRow] = []
        types: list[TypeFit] = []
        for (model, has_servers), each in sorted(self._observed.items(), key=lambda each: (each[0][0], not each[0][1])):
            known = {at: mean for at, mean in sorted(each.items()) if mean.samples_per_second > 0}
            if not known:
                continue
            job = _wide_enough(self._largest[model, has_servers], known)
            error = _cross_validated(model, known, job)
            types.append(TypeFit(model, len(known), sum(mean.slots for mean in known.values()), error))
            rows += _rows(model, known, job, error)
        if not rows:
            raise BadInput("no job has told its speed in that history: let jobs run for some slots first")
        return SpeedFit(tuple(rows), tuple(types))


class MeasuredSpeeds:
    """`MeasuredSpeeds` go through a history once, as it grows.

    Attributes:
        means: what was trained over the time of the slots in which it was measured, in samples a second.
    """

    def __init__(self) -> None:
        self.means: dict[MeasuredAt, float] = {}
        self._known: dict[MeasuredAt, MeanSpeed] = {}

    def observe(self, slot: RecordedSlot) -> None:
        """Take the next slot."""
        for measured in measured_speeds(slot):
            at = measured.model, measured.servers, measured.workers
            known = self._known.setdefault(at, MeanSpeed())
            known.add(measured)
            self.means[at] = known.samples_per_second


def measured_speeds(slot: RecordedSlot) -> Iterator[MeasuredSpeed]:
    """Yield the speeds of jobs that kept their counts for the slot.

    Another job's speed is partly that of other counts, or of a start. A slot in which the clock jumped tells none. One
    in which a job told that it got no further tells 0: without it the mean would be that of the others alone.
    """
    if slot.outcome is None or clock_jumped(slot):
        return
    states = {state.job.id: state for state in slot.snapshot.jobs}
    done = {each.id: each for each in slot.outcome.jobs}
    told = {report.job for report in slot.snapshot.reports}
    for report in slot.outcome.reports:
        state = states.get(report.job) if report.job in done else None
        if state is None or (state.servers, state.workers) != (report.servers, report.workers):
            continue
        found = _speed(slot, state, done[report.job], report, report.job in told)
        if found is not None:
            yield MeasuredSpeed(report.job, report.model, report.servers, report.workers, *found)


def _speed(
    slot: RecordedSlot, state: JobState, done: JobOutcome, report: SpeedReport, told: bool
) -> tuple[float, float] | None:
    """Return the samples a second that the job trained in the slot, and the seconds for which that is known.

    None: it did not tell where it was at both its ends, was set back, or ended and nobody heard how far it came. What
    jobs report leaves out what they do between epochs. It is taken where the history has no times.
    """
    outcome = slot.outcome
    if outcome is None or outcome.began is None or outcome.ended is None:
        return (report.samples_per_second, slot.snapshot.slot_seconds) if report.samples_per_second > 0 else None
    if not told or not state.job.samples_known or done.lost or (done.finished is not None and not done.epochs):
        return None
    passed = (outcome.ended if done.finished is None else done.finished) - outcome.began
    if passed <= 0:  # its end may be told late
        return None
    return done.epochs * state.job.samples_per_epoch / passed, passed


def clock_jumped(slot: RecordedSlot) -> bool:
    """Return whether a slot took far longer than it may, or less than nothing: the machine slept, or was set."""
    outcome = slot.outcome
    if outcome is None or outcome.began is None or outcome.ended is None:
        return False
    return not 0 <= outcome.ended - outcome.began <= _longest(slot)


def left_alone(before: RecordedSlot, slot: RecordedSlot) -> bool:
    """Return whether nobody decided for long between two slots: no scheduler ran, or the clock was set.

    Args:
        before: the slot with jobs that came before.
        slot: the next one.
    """
    return not 0 <= slot.at - before.at <= _longest(before)


def _longest(slot: RecordedSlot) -> float:
    """Return the seconds that a slot may take."""
    return _LONGEST_SLOT * slot.snapshot.slot_seconds + _LATE_SECONDS


def _larger(one: Job, other: Job) -> Job:
    """Return a job that may have what either of two may, which both have servers, or none."""
    most = {name: max(getattr(one, name), getattr(other, name)) for name in ("max_workers", "max_servers")}
    return Job(one.id, 0.0, one.model, 1.0, 1.0, one.worker, one.server, **most, min_servers=int(one.has_servers))


def _wide_enough(job: Job, known: Iterable[Counts]) -> Job:
    """Return a job that may have all that was measured: the maxima of some may have been lowered below what they had.

    It may have two workers, too: a table with one row of a type is refused by who reads it.

    Args:
        job: of the type, with the largest maxima.
        known: counts that were measured.
    """
    servers, workers = map(max, zip(*known, strict=True))
    return replace(job, max_servers=max(job.max_servers, servers), max_workers=max(job.max_workers, workers, 2))


def _fitted(model: str, known: Mapping[Counts, MeanSpeed]) -> FittedSpeeds:
    speeds = FittedSpeeds()
    speeds.observe(SpeedReport(0, model, *at, each.samples_per_second) for at, each in known.items())
    return speeds


def _cross_validated(model: str, known: Mapping[Counts, MeanSpeed], job: Job) -> float:
    """See `TypeFit.error`."""
    if len(known) < _LEAST_CONFIGURATIONS:
        return float("nan")
    missed = []
    for left_out, true in known.items():
        others = {at: each for at, each in known.items() if at != left_out}
        found = _fitted(model, others).grid(job)[left_out]
        missed.append(float(found) / true.samples_per_second - 1)
    return float(np.sqrt(np.mean(np.square(missed))))


def _rows(model: str, known: Mapping[Counts, MeanSpeed], job: Job, error: float) -> Iterator[SpeedRow]:
    grid = _fitted(model, known).grid(job)
    shown = product(_some(job.max_servers) if job.has_servers else [0], _some(job.max_workers))
    for servers, workers in sorted({*known, *shown}):
        measured = known.get((servers, workers))
        if measured is None:
            yield SpeedRow(model, servers, workers, float(grid[servers, workers]), 0, error)
        else:
            own = error if np.isnan(measured.error) else measured.error
            yield SpeedRow(model, servers, workers, measured.samples_per_second, measured.slots, own)


def _some(most: int) -> list[int]:
    """Return the counts, from 1 to the most, that a table shows: all, or of many ever fewer the larger they are."""
    found: list[int] = np.unique(np.geomspace(1, most, _MOST_COUNTS).round().astype(int)).tolist()
    return found if most > _MOST_COUNTS else list(range(1, most + 1))
