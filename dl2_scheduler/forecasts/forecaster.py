"""This module forecasts the present jobs of a live cluster, slot by slot, and learns from what came true."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from dl2_scheduler.cluster.forecast import ExpectedTime, Forecast
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Allocation, JobId, JobState
from dl2_scheduler.forecasts.calibration import Calibration, RawForecast
from dl2_scheduler.forecasts.drawn_world import HORIZON
from dl2_scheduler.forecasts.ensemble import MEMBERS, Ensemble, play_futures, with_known_speeds
from dl2_scheduler.forecasts.records import EventKind, ForecastRecords, MadeForecast
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.measured import clock_jumped, left_alone
from dl2_scheduler.replay.past import ended_by_itself, is_first
from dl2_scheduler.world_model.observed import ObservedCluster

log = logging.getLogger(__name__)

_KEPT = 64  # forecasts of a slot that are looked at again when they have come true


@dataclass(frozen=True)
class SlotForecasts:
    """`SlotForecasts` are those of all jobs of a slot.

    Attributes:
        slot: number.
        by_job: by the job's id; jobs that nobody knows enough about are left out.
    """

    slot: int
    by_job: dict[JobId, Forecast]


_SLOT = TypeAdapter(SlotForecasts)


def as_line(forecasts: SlotForecasts) -> str:
    """Return the forecasts of a slot as a line of text."""
    return _SLOT.dump_json(forecasts).decode()


def of_message(said: Mapping[str, Any]) -> SlotForecasts:
    """Return the forecasts that such a line says, as JSON has them."""
    return _SLOT.validate_python(said)


@dataclass(frozen=True)
class MadeInSlot:
    """`MadeInSlot` are the forecasts of a slot before they are corrected.

    Attributes:
        slot: number.
        forecasts: of its jobs.
    """

    slot: int
    forecasts: list[MadeForecast]


class Forecaster:
    """A `Forecaster` forecasts at the end of a history, which grows.

    Args:
        history: the history of the cluster.
        rule: the rule by which tasks find their node.
        records: of earlier forecasts.
        make: a policy of a name.
        members: futures of an ensemble.
    """

    def __init__(
        self,
        history: History,
        rule: NodeRule,
        records: ForecastRecords,
        make: Callable[[str], AllocationPolicy],
        members: int = MEMBERS,
    ):
        self.observed = ObservedCluster.recent(history)
        self._rule, self._records, self._make, self._members = rule, records, make, members
        self.calibrations: dict[EventKind, Calibration] = {kind: records.calibration(kind) for kind in EventKind}
        self._made = -1  # the last slot whose jobs were forecast
        self._lived: RecordedSlot | None = None  # the last slot that was learnt from
        self._lacked_time = False  # for all futures of the slot that was forecast last

    def forecast(self, seconds: float = np.inf) -> SlotForecasts | None:
        """Return forecasts of the last slot's jobs, under the policy that decided it; None: there are no new ones.

        Args:
            seconds: how long to compute.

        Raises:
            BadInput: the policy can be read no more.
            Exception: whatever the policy raises.
        """
        made = self.made(seconds)
        return SlotForecasts(made.slot, told(made.forecasts, self.calibrations)) if made is not None else None

    def made(self, seconds: float = np.inf) -> MadeInSlot | None:
        """Do what `forecast` does, and return what the ensemble says, which is not corrected yet.

        Args:
            seconds: how long to compute.

        Raises:
            BadInput, Exception: see `forecast`.
        """
        self.catch_up()
        last = self.observed.last
        if last is None or last.snapshot.slot == self._made:  # slots without jobs are in no history
            return None
        policy = with_known_speeds(self._make(last.policy), self.observed.fitted)
        seed, how_many = last.snapshot.slot, self._members
        decided = last.allocation.without_exploration  # what a job runs with for one slot would be kept for several
        ensemble = play_futures(
            self.observed, policy, self._rule, seed, members=how_many, seconds=seconds, decided=decided
        )
        if ensemble is None:
            return None
        self._made = last.snapshot.slot
        self._tell_of_few(len(ensemble))
        made = list(made_forecasts(ensemble, last.allocation, last.at))
        kept = np.random.default_rng(seed).permutation(len(made))[:_KEPT]
        self._records.add(made[number] for number in sorted(kept.tolist()))
        return MadeInSlot(last.snapshot.slot, made)

    def _tell_of_few(self, futures: int) -> None:
        """Log that time did not suffice for all futures, and that it does again."""
        before, self._lacked_time = self._lacked_time, futures < self._members
        if self._lacked_time != before:
            log.info("slot %d: there was time for %d of %d futures", self._made, futures, self._members)

    @property
    def present_jobs(self) -> Sequence[JobState]:
        """The jobs of the last slot."""
        return self.observed.last.snapshot.jobs if self.observed.last is not None else ()

    def catch_up(self) -> None:
        """Read what has happened since the last time, and learn from the forecasts that have come true."""
        for slot in self.observed.new_slots():
            if slot.outcome is not None:
                self._learn(slot)

    def _learn(self, slot: RecordedSlot) -> None:
        assert slot.outcome is not None
        self._forget_the_undecided(slot)
        if clock_jumped(slot):  # by as much all that is pending would seem to have been wrong
            self._records.forget_until(slot.at)
        states = {state.job.id: state for state in slot.snapshot.jobs}
        began = slot.outcome.began
        for done in slot.outcome.jobs:
            state = states[done.id]
            if is_first(state, done):
                start = self.observed.start_seconds
                after = start if done.since is None or began is None else done.since - began
                self._came_true(EventKind.START, done.id, state.job.arrival, slot.at + max(after, 0.0))
            if done.finished is None:
                continue
            if ended_by_itself(state, done) and began is not None:
                self._came_true(EventKind.END, done.id, state.job.arrival, slot.at + done.finished - began)
            self._records.forget(done.id, state.job.arrival)

    def _forget_the_undecided(self, slot: RecordedSlot) -> None:
        """Forget what was forecast before a time in which no policy decided: it would be wrong by all of that time.

        No policy decides while no scheduler runs, nor about a job that its owner holds.
        """
        before, self._lived = self._lived, slot
        if before is None:
            return
        if left_alone(before, slot):
            self._records.forget_until(before.at)
        decided = {(state.job.id, state.job.arrival) for state in before.snapshot.jobs}
        for state in slot.snapshot.jobs:
            if (state.job.id, state.job.arrival) not in decided:
                self._records.forget(state.job.id, state.job.arrival, slot.at)

    def _came_true(self, kind: EventKind, job: JobId, arrival: float, at: float) -> None:
        self.calibrations[kind].observe(self._records.came_true(kind, job, arrival, at))


def made_forecasts(ensemble: Ensemble, granted: Allocation, now: float) -> Iterator[MadeForecast]:
    """Yield what an ensemble says of each job of a slot.

    Args:
        ensemble: of the slot's futures.
        granted: in the slot: of tasks that are about to start nothing is forecast.
        now: unix seconds, from which the ensemble counts.
    """
    length = ensemble.present.slot_seconds
    for number, state in enumerate(ensemble.present.jobs):
        job = state.job
        times = {EventKind.START: ensemble.starts[:, number], EventKind.END: ensemble.ends[:, number]}
        if np.isnan(times[EventKind.START]).any() or granted.of(job.id).workers:
            del times[EventKind.START]
        for kind, seconds in times.items():
            raw = RawForecast.of(seconds.tolist(), HORIZON * length, length)
            if raw is not None:
                yield MadeForecast(kind, job.id, job.arrival, now, raw)


def told(made: Sequence[MadeForecast], calibrations: Mapping[EventKind, Calibration]) -> dict[JobId, Forecast]:
    """Return what people are told, by job.

    Args:
        made: the forecasts of a slot.
        calibrations: what earlier ones teach.
    """
    expected: dict[JobId, dict[EventKind, ExpectedTime]] = {}
    for each in made:
        expected.setdefault(each.job, {})[each.kind] = calibrations[each.kind].expected(each.raw, each.made)
    when = {each.job: each.made for each in made}
    return {
        job: Forecast(when[job], found.get(EventKind.START), found.get(EventKind.END))
        for job, found in expected.items()
    }
