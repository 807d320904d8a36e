"""This module finds the starts, joins and ends of a live cluster's jobs, slot by slot, in its history."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dl2_scheduler.cluster.interfaces import JobOutcome
from dl2_scheduler.cluster.snapshot import Grant, JobId, JobState
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.measured import Counts, MeasuredAt, clock_jumped
from dl2_scheduler.replay.past import trained_all

Key = tuple[JobId, float]
"""A job's name and arrival: a name may be used again."""


@dataclass(frozen=True)
class ScalingDelay:
    """A `ScalingDelay` says how long one start, join or end of a job took.

    Attributes:
        seconds: the seconds that it took.
        seen: whether to its end; else it was cut off then, and would have taken longer.
    """

    seconds: float
    seen: bool = True


@dataclass(frozen=True)
class _Lived:
    """A `_Lived` slot is what one job went through in it.

    Attributes:
        began: seconds since the cluster began.
        slot: the slot.
        state: the state at its start.
        reported: whether the job had just told how far it is.
        grant: what the job was granted for it.
        done: what became of it.
    """

    began: float
    slot: RecordedSlot
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

    def trains_since(self, began: float) -> float | None:
        """Return the seconds from then until it trained with its grant; None: it does not, or did before."""
        since = self.done.since
        trains = (self.done.servers, self.done.workers) == self.granted and since is not None
        return since - began if trains and since is not None and since >= began else None


@dataclass(frozen=True)
class _Asked:
    """An `_Asked` join says since when a running job shall have more, and what."""

    began: float
    wanted: Counts


@dataclass(frozen=True)
class _Expected:
    """An `_Expected` end says what a job has to train still, from when on, and as what it trains."""

    began: float
    samples: float
    at: MeasuredAt


class Scalings:
    """`Scalings` go through a history once, as it grows.

    What they keep is bounded by the jobs that are there and by `most`.

    Args:
        speeds: samples a second, by type and counts; it may come to be known meanwhile.
        most: waits of each kind that are kept, the latest; None: all.

    Attributes:
        starts: from the decision that gives a job its first tasks, or some again, until it trains.
        joins: from the decision that gives a running job more until the new tasks train too.
        ends: from a job's last step, as its speed lets expect it, until its processes have ended.
    """

    def __init__(self, speeds: Mapping[MeasuredAt, float], most: int | None = None):
        self.starts: deque[ScalingDelay] = deque(maxlen=most)
        self.joins: deque[ScalingDelay] = deque(maxlen=most)
        self.ends: deque[ScalingDelay] = deque(maxlen=most)
        self._speeds = speeds
        self._starting: dict[Key, float] = {}
        self._joining: dict[Key, _Asked] = {}
        self._ending: dict[Key, _Expected] = {}

    def observe(self, slot: RecordedSlot) -> None:
        """Take the next slot; one whose times or outcome are not known, or in which the clock jumped, tells nothing."""
        if clock_jumped(slot):
            for waiting in (self._starting, self._joining, self._ending):
                waiting.clear()
            return
        present = set()
        for lived in _lived(slot):
            self._start(lived)
            self._join(lived)
            self._end(lived)
            if lived.done.finished is None:
                present.add(lived.key)
        if slot.outcome is not None:
            pending: tuple[dict[Key, Any], ...] = (self._starting, self._joining, self._ending)
            for waiting in pending:
                for gone in waiting.keys() - present:
                    del waiting[gone]

    def _start(self, lived: _Lived) -> None:
        key, runs = lived.key, lived.state.workers > 0
        if not lived.grant.runs or (runs and lived.granted != lived.before):
            began = self._starting.pop(key, None)
            if began is not None and not runs:
                self.starts.append(ScalingDelay(lived.began - began, seen=False))
            return
        if not runs and not lived.state.starting:  # else it was started before, maybe before the history begins
            self._starting.setdefault(key, lived.began)
        if key not in self._starting:
            return
        since = lived.done.since
        if since is not None and since >= self._starting[key]:
            self.starts.append(ScalingDelay(since - self._starting.pop(key)))
        elif runs:  # it is not known when it began to train
            del self._starting[key]

    def _join(self, lived: _Lived) -> None:
        key, joined = lived.key, None
        asked = self._joining.pop(key, None)
        if asked is not None:
            joined = lived.before == asked.wanted
            if asked.wanted != lived.granted or lived.done.finished is not None:
                if not joined:  # it still waited when this slot began
                    self.joins.append(ScalingDelay(lived.began - asked.began, seen=False))
                asked = None
        if asked is None:
            more = any(granted > had > 0 for granted, had in zip(lived.granted, lived.before, strict=True))
            if not more or not lived.grant.runs or lived.done.finished is not None:
                return
            asked, joined = _Asked(lived.began, lived.granted), False
        seconds = lived.trains_since(asked.began)
        if seconds is not None:
            self.joins.append(ScalingDelay(seconds))
        elif not joined:  # else it has what it wanted for a slot, and nobody knows since when
            self._joining[key] = asked

    def _end(self, lived: _Lived) -> None:
        state, done = lived.state, lived.done
        if lived.reported:
            self._ending.pop(lived.key, None)
            if lived.granted == lived.before and state.job.samples_known:
                left = (state.job.epochs - state.epochs_done) * state.job.samples_per_epoch
                self._ending[lived.key] = _Expected(lived.began, left, (state.job.model, *lived.before))
        expected = self._ending.get(lived.key)
        if expected is None or done.finished is None or not trained_all(lived.slot, state, done):
            return
        if speed := self._speeds.get(expected.at, 0.0):
            self.ends.append(ScalingDelay(done.finished - expected.began - expected.samples / speed))


def _lived(slot: RecordedSlot) -> Iterator[_Lived]:
    outcome = slot.outcome
    if outcome is None or outcome.began is None:
        return
    done = {each.id: each for each in outcome.jobs}
    reported = {report.job for report in slot.snapshot.reports}
    for state in slot.snapshot.jobs:
        name = state.job.id
        if name in done:
            yield _Lived(outcome.began, slot, state, name in reported, slot.allocation.of(name), done[name])
