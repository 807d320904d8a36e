"""This module finds the speeds of a live cluster's jobs in its history, and fits them where nothing was measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobState, SpeedReport
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
class MeasuredConfiguration:
    """A `MeasuredConfiguration` says how fast one type trained with one configuration.

    Attributes:
        samples_per_second: mean over the slots.
        slots: in which it was measured.
        error: relative standard error of the mean; NaN: it was measured once.
    """

    samples_per_second: float
    slots: int
    error: float


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


def fit_speeds(slots: Sequence[RecordedSlot]) -> SpeedFit:
    """Return the speeds of all types that were measured, fitted where a configuration was not.

    Raises:
        BadInput: none was.
    """
    observed = _observed(report for slot in slots for report in measured_speeds(slot))
    if not observed:
        raise BadInput("no job has told its speed in that history: let jobs run for some slots first")
    largest: dict[tuple[str, bool], Job] = {}
    for slot in slots:
        for job in (state.job for state in slot.snapshot.jobs):
            key = job.model, job.has_servers
            largest[key] = _larger(largest.get(key, job), job)
    rows: list[SpeedRow] = []
    types: list[TypeFit] = []
    for (model, has_servers), known in sorted(observed.items(), key=lambda each: (each[0][0], not each[0][1])):
        job = _wide_enough(largest[model, has_servers], known)
        error = _cross_validated(model, known, job)
        types.append(TypeFit(model, len(known), sum(each.slots for each in known.values()), error))
        rows += _rows(model, known, job, error)
    return SpeedFit(tuple(rows), tuple(types))


class MeasuredSpeeds:
    """`MeasuredSpeeds` go through a history once, as it grows.

    Attributes:
        means: the means of the slots in which they were measured, in samples a second.
    """

    def __init__(self) -> None:
        self.means: dict[MeasuredAt, float] = {}
        self._counts: dict[MeasuredAt, int] = {}

    def observe(self, slot: RecordedSlot) -> None:
        """Take the next slot."""
        for report in measured_speeds(slot):
            at = report.model, report.servers, report.workers
            count, mean = self._counts.get(at, 0) + 1, self.means.get(at, 0.0)
            self._counts[at], self.means[at] = count, mean + (report.samples_per_second - mean) / count


def measured_speeds(slot: RecordedSlot) -> Iterator[SpeedReport]:
    """Yield the speeds of jobs that kept their counts for the slot.

    Another job's speed is partly that of other counts, or of a start. A slot in which the clock jumped tells none.
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
        speed = _speed(slot.outcome, state, done[report.job], report, report.job in told)
        if speed > 0:
            yield replace(report, samples_per_second=speed)


def _speed(outcome: SlotOutcome, state: JobState, done: JobOutcome, report: SpeedReport, told: bool) -> float:
    """Return the samples a second that the job trained in the slot; 0: it did not tell where it was at both its ends.

    What jobs report leaves out what they do between epochs. It is taken where the history has no times.
    """
    if outcome.began is None or outcome.ended is None:
        return report.samples_per_second
    if not told or not state.job.samples_known:
        return 0.0
    passed = (outcome.ended if done.finished is None else done.finished) - outcome.began
    return done.epochs * state.job.samples_per_epoch / passed if passed > 0 else 0.0  # its end may be told late


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


def _observed(reports: Iterable[SpeedReport]) -> dict[tuple[str, bool], dict[Counts, MeasuredConfiguration]]:
    """Return what was measured, by type and whether the jobs have servers."""
    values: dict[tuple[str, bool], dict[Counts, list[float]]] = {}
    for report in reports:
        of_model = values.setdefault((report.model, report.servers > 0), {})
        of_model.setdefault((report.servers, report.workers), []).append(report.samples_per_second)
    return {key: {at: _mean(each) for at, each in sorted(known.items())} for key, known in values.items()}


def _mean(speeds: Sequence[float]) -> MeasuredConfiguration:
    mean, count = float(np.mean(speeds)), len(speeds)
    error = float(np.std(speeds, ddof=1)) / count**0.5 / mean if count > 1 else float("nan")
    return MeasuredConfiguration(mean, count, error)


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


def _fitted(model: str, known: Mapping[Counts, MeasuredConfiguration]) -> FittedSpeeds:
    speeds = FittedSpeeds()
    speeds.observe(SpeedReport(0, model, *at, each.samples_per_second) for at, each in known.items())
    return speeds


def _cross_validated(model: str, known: Mapping[Counts, MeasuredConfiguration], job: Job) -> float:
    """See `TypeFit.error`."""
    if len(known) < _LEAST_CONFIGURATIONS:
        return float("nan")
    missed = []
    for left_out, true in known.items():
        others = {at: each for at, each in known.items() if at != left_out}
        found = _fitted(model, others).grid(job)[left_out]
        missed.append(float(found) / true.samples_per_second - 1)
    return float(np.sqrt(np.mean(np.square(missed))))


def _rows(model: str, known: Mapping[Counts, MeasuredConfiguration], job: Job, error: float) -> Iterator[SpeedRow]:
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
