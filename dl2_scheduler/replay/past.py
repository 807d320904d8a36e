"""This module finds the jobs of a live cluster in its history."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dl2_scheduler.cluster.interfaces import JobOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobId, JobState
from dl2_scheduler.live.recorded_slots import RecordedSlot

_FASTER = 2.0  # times as fast as it said a job may have been in its last slot
_ROUNDING = 1e-6  # part of the epochs by which sums of them may be off


@dataclass(frozen=True)
class PastJob:
    """A `PastJob` is a job of a history, and how long it took.

    Attributes:
        job: as the simulator takes it, with an id of its own and its arrival since the first one's.
        seconds: from its arrival to its end; None: the history does not have it, or it failed, was stopped, or has
            stopped early.
    """

    job: Job
    seconds: float | None


def past_jobs(slots: Iterable[RecordedSlot]) -> list[PastJob]:
    """Return the jobs, by arrival, whose samples are known.

    Of those that never told them nobody knows the work.
    """
    found = PastJobs()
    for slot in slots:
        found.observe(slot)
    return found.known


class PastJobs:
    """`PastJobs` go through a history once, slot by slot."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[JobId, float], Job] = {}
        self._ends: dict[tuple[JobId, float], float] = {}

    def observe(self, slot: RecordedSlot) -> None:
        """Take the next slot."""
        states = {state.job.id: state for state in slot.snapshot.jobs}
        for state in slot.snapshot.jobs:
            key = state.job.id, state.job.arrival
            if state.job.samples_known or key not in self._jobs:
                self._jobs[key] = state.job
        for done in slot.outcome.jobs if slot.outcome else ():
            arrival = states[done.id].job.arrival
            if done.finished is not None and trained_all(slot, states[done.id], done):
                self._ends[done.id, arrival] = done.finished - arrival

    @property
    def known(self) -> list[PastJob]:
        """The jobs, by arrival, whose samples are known."""
        known = sorted((job.arrival, str(job.id), key) for key, job in self._jobs.items() if job.samples_known)
        first = known[0][0] if known else 0.0
        names: dict[str, int] = {}
        jobs = []
        for arrival, name, key in known:
            names[name] = names.get(name, 0) + 1
            unique = name if names[name] == 1 else f"{name}.{names[name]}"  # a name may be used again
            jobs.append(PastJob(replace(self._jobs[key], id=unique, arrival=arrival - first), self._ends.get(key)))
        return jobs


def ended_by_itself(state: JobState, done: JobOutcome) -> bool:
    """Return whether a job ended as its script did, not because it failed or was stopped before.

    It counts as having trained all its epochs then, as nobody hears what it trained last; or more, where its owner
    expected fewer than its script trains.
    """
    least = state.job.epochs * (1 - _ROUNDING)
    return done.finished is not None and state.epochs_done + done.epochs >= least


def is_first(state: JobState, done: JobOutcome) -> bool:
    """Return whether a slot is the first in which a job trained."""
    return bool(done.workers and not (state.slots_run or state.workers))


def trained_all(slot: RecordedSlot, state: JobState, done: JobOutcome) -> bool:
    """Return whether a job ended by itself when it had trained its epochs, and neither fewer nor more.

    See `likely_epochs`.

    Args:
        slot: the last one of the job.
        state: of the job at its start.
        done: what became of the job.
    """
    as_told = math.isclose(state.epochs_done + done.epochs, state.job.epochs, rel_tol=_ROUNDING)
    return as_told and ended_by_itself(state, done) and likely_epochs(slot, state, done) == done.epochs


def likely_epochs(slot: RecordedSlot, state: JobState, done: JobOutcome) -> float:
    """Return the epochs that a job trained in a slot in which it ended by itself.

    A script may stop early, as where nothing improves any more. It has if it would have had to be far faster than it
    said, with the same tasks: then these are the epochs that it had time for.

    Args:
        slot: the last one of the job.
        state: of the job at its start.
        done: what became of the job.
    """
    outcome, grant = slot.outcome, slot.allocation.of(done.id)
    speeds = [report.samples_per_second for report in slot.snapshot.reports if report.job == done.id]
    kept = (grant.workers, grant.servers) == (state.workers, state.servers)
    if outcome is None or outcome.began is None or done.finished is None or not (speeds and kept):
        return done.epochs
    epochs_a_second = speeds[0] / state.job.samples_per_epoch
    passed = max(0.0, done.finished - outcome.began)
    most = _FASTER * (passed + slot.snapshot.slot_seconds) * epochs_a_second  # what was told may be old by a slot
    return done.epochs if done.epochs <= most else passed * epochs_a_second
