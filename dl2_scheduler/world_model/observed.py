"""This module reads a live cluster's history, as it grows, and keeps what it tells of speeds, sizes and costs."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.ranges import MOST_SAMPLES
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.live.history import History
from dl2_scheduler.live.known_samples import told_in
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.serve_the_waiting import Waited, count_waiting
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.replay.costs import RecentCosts
from dl2_scheduler.replay.predicted import seconds_between
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.world_model.known_jobs import KnownJobs

_UNKNOWN_SLOTS = 10.0  # that a job of which nothing is known takes with its minimum
_TIMED = 30  # slots whose length counts
RECENT = 5000, 200_000
"""Of a history that was there before, the last slots, and the states of jobs in them at most, which who has to say
something soon reads as it begins: what is older tells little of today, and to read 100,000 slots of 40 jobs takes six
minutes of a core."""


class ObservedCluster:
    """An `ObservedCluster` knows of a cluster what its history has told so far.

    Args:
        history: the history of the cluster.
        after: the number of a slot; those up to it are not read.

    Attributes:
        fitted: speeds, fitted to what jobs reported.
        samples: samples of an epoch, by type, as the type's last job told them.
        jobs: what its jobs have shown.
        waited: how long jobs have waited when the last slot begins; see `live.serve_the_waiting`.
        last: the last slot; None: there is none yet.
    """

    @classmethod
    def recent(cls, history: History) -> "ObservedCluster":
        """Return what the last slots of a history tell, and those that follow."""
        return cls(history, history.recent(*RECENT))

    def __init__(self, history: History, after: int = -1):
        self.fitted = FittedSpeeds()
        self.samples: dict[str, float] = {}
        self.jobs = KnownJobs()
        self.waited: Waited = {}
        self.last: RecordedSlot | None = None
        self._latest: deque[RecordedSlot] = deque(maxlen=_TIMED)
        self._history = history
        self._costs = RecentCosts()
        self._ended = after  # the last slot whose outcome was seen

    @property
    def cost(self) -> ScalingCost:
        """The cost of scaling, as far as the history tells."""
        return self._costs.scaling

    @property
    def start_seconds(self) -> float:
        """The seconds from a job's grant until it trains; what other jobs' ends take is in `cost.start`, too."""
        return self._costs.start_seconds

    @property
    def now(self) -> float:
        """The last slot's start, in seconds since the cluster began, as far as the slots before tell.

        It is after all known jobs came, also where the clock has been set back since.
        """
        ended = self._latest[-1].outcome.ended if self._latest and self._latest[-1].outcome else None
        return max(ended or 0.0, *(arrival for _, arrival in self.jobs.by_key), 0.0)

    @property
    def slot_seconds(self) -> float:
        """The seconds from a slot's start to the next one's, of late; NaN: there is no slot yet."""
        if self.last is None:
            return math.nan
        length = self.last.snapshot.slot_seconds
        # Before a restart `dl2 serve --slot` may have been another.
        alike = [slot for slot in self._latest if slot.snapshot.slot_seconds == length]
        return seconds_between(alike) if alike else length

    @property
    def present(self) -> Snapshot | None:
        """The last slot's snapshot, in which each job has its samples, if only guessed; None: there is none yet.

        It says for how long jobs have been starting, too.
        """
        if self.last is None:
            return None
        seen = with_samples(self.last.snapshot, self.samples, self.fitted)
        jobs = (replace(state, starting_seconds=self._starting_seconds(state.job)) for state in seen.jobs)
        return replace(seen, jobs=tuple(jobs))

    def _starting_seconds(self, job: Job) -> float:
        return self.slot_seconds * self.jobs.by_key[job.id, job.arrival].starting

    def catch_up(self) -> None:
        """Read what the history has got since the last time."""
        for _ in self.new_slots():
            pass

    def new_slots(self) -> Iterator[RecordedSlot]:
        """Read what the history has got since the last time, and yield each slot when it has been taken in.

        What came of the last slot is known only when the next one has begun: it is read, and yielded, twice.
        """
        for slot in self._history.slots(after=self._ended):
            number = slot.snapshot.slot
            if self.last is not None and number < self.last.snapshot.slot:  # it was cut short: nothing comes of it
                continue
            if self.last is None or number > self.last.snapshot.slot:
                if self.last is not None:
                    self.waited = count_waiting(self.waited, self.last.snapshot, self.last.allocation)
                self.fitted.observe(slot.snapshot.reports)
                self.samples |= told_in(slot.snapshot)
                self.jobs.see(slot)
            if slot.outcome is not None:
                self.jobs.observe(slot)
                self._latest.append(slot)
                self._costs.observe(slot)
                self._ended = number
            self.last = slot
            yield slot


def with_samples(snapshot: Snapshot, known: Mapping[str, float], fitted: FittedSpeeds) -> Snapshot:
    """Guess the samples of jobs that have not told them, so that a policy which never starts them is found out.

    Args:
        snapshot: as it was seen.
        known: samples of an epoch, by type; a job of another type is taken to end after `_UNKNOWN_SLOTS`.
        fitted: to what jobs of the cluster reported.
    """
    seconds = snapshot.slot_seconds
    states = [replace(state, job=with_guess(state.job, known, fitted, seconds)) for state in snapshot.jobs]
    return replace(snapshot, jobs=tuple(states))


def with_guess(job: Job, known: Mapping[str, float], fitted: FittedSpeeds, slot_seconds: float) -> Job:
    """Return a job with its samples; those that it has not told are guessed.

    Args:
        job: as it was seen.
        known: see `with_samples`.
        fitted: see `with_samples`.
        slot_seconds: length of a slot.
    """
    if job.samples_known:
        return job
    work = _UNKNOWN_SLOTS * slot_seconds * float(fitted.grid(job)[job.min_servers, job.min_workers])
    guessed = min(work / job.estimate, MOST_SAMPLES)  # no simulation takes more, and one job would end all of it
    return replace(job, samples_per_epoch=known.get(job.model, guessed))
