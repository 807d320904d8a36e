"""This module keeps what a history tells of its jobs: their own speeds, what they needed, and when they came."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.replay.measured import Counts, MeanSpeed, measured_speeds
from dl2_scheduler.replay.past import ended_by_itself, likely_epochs

JobKey = tuple[JobId, float]
"""Id and arrival: a name may be used again."""

_REMEMBERED = 300  # jobs that have ended: what jobs are like changes with the people who submit them


@dataclass
class KnownJob:
    """A `KnownJob` says what one job has shown so far.

    Attributes:
        job: as it was seen last.
        speeds: that it had with each of its configurations.
        needed: the epochs that it trained until it ended by itself, over its owner's estimate; None: it has not.
        saves: whether it can be suspended and go on later.
        starting: slots in a row, up to the present one, that began while it was being started.
    """

    job: Job
    speeds: dict[Counts, MeanSpeed] = field(default_factory=dict)
    needed: float | None = None
    saves: bool = True
    starting: int = 0

    def log_factor(self, fitted: FittedSpeeds) -> float | None:
        """Return the logarithm of its speed over its type's, weighted by slots; None: its speed is not known."""
        known = {at: mean for at, mean in self.speeds.items() if mean.samples_per_second > 0}
        slots = sum(mean.slots for mean in known.values())
        if not slots:
            return None
        job = self.job
        for servers, workers in known:  # its maxima may have been lowered since
            job = replace(job, max_servers=max(job.max_servers, servers), max_workers=max(job.max_workers, workers))
        grid = fitted.grid(job)
        return sum(mean.slots * math.log(mean.samples_per_second / grid[at]) for at, mean in known.items()) / slots


class KnownJobs:
    """`KnownJobs` go through a history once, as it grows.

    Attributes:
        by_key: those that are remembered, in the order in which they came.
    """

    def __init__(self) -> None:
        self.by_key: dict[JobKey, KnownJob] = {}
        self._present: frozenset[JobKey] = frozenset()  # in the slot that was seen last

    def see(self, slot: RecordedSlot) -> None:
        """Take a slot whose outcome may not be known yet."""
        self._present = frozenset((state.job.id, state.job.arrival) for state in slot.snapshot.jobs)
        for state in slot.snapshot.jobs:
            job = state.job
            observed = self.by_key.setdefault((job.id, job.arrival), KnownJob(job))
            observed.saves = state.saves
            observed.starting = observed.starting + 1 if state.starting else 0
            if job.samples_known or not observed.job.samples_known:
                observed.job = job

    def observe(self, slot: RecordedSlot) -> None:
        """Take what came of a slot that was seen before."""
        states = {state.job.id: state for state in slot.snapshot.jobs}
        for measured in measured_speeds(slot):
            state = states[measured.job]
            known = self.by_key[state.job.id, state.job.arrival].speeds
            known.setdefault((measured.servers, measured.workers), MeanSpeed()).add(measured)
        for done in slot.outcome.jobs if slot.outcome else ():
            state = states[done.id]
            observed = self.by_key[done.id, state.job.arrival]
            if ended_by_itself(state, done):
                observed.needed = (state.epochs_done + likely_epochs(slot, state, done)) / state.job.estimate
        self._forget_old()

    def log_factors(self, fitted: FittedSpeeds) -> list[float]:
        """Return what is known of how jobs' speeds stray from their types'."""
        found = (observed.log_factor(fitted) for observed in self.by_key.values())
        return [each for each in found if each is not None]

    def needed(self) -> list[float]:
        """Return the epochs that jobs trained over their owners' estimates, of jobs that ended by themselves."""
        return [observed.needed for observed in self.by_key.values() if observed.needed is not None]

    def came(self, now: float) -> list[tuple[float, KnownJob]]:
        """Return jobs by arrival, each with the seconds until the next one came, or until now.

        Args:
            now: seconds since the cluster began.
        """
        ordered = sorted(self.by_key.values(), key=lambda observed: observed.job.arrival)
        times = [observed.job.arrival for observed in ordered]
        return list(
            zip((after - one for one, after in pairwise([*times, max(now, *times, 0.0)])), ordered, strict=True)
        )

    def _forget_old(self) -> None:
        """Forget the oldest of those that are gone, also where nobody saw how they ended."""
        over = len(self.by_key) - _REMEMBERED
        for key in [key for key in self.by_key if key not in self._present][: max(over, 0)]:
            del self.by_key[key]
