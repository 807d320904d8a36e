"""This module reads a live cluster's history, as it grows, and keeps what it tells of speeds, sizes and costs."""

from collections.abc import Mapping
from dataclasses import replace

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.replay.costs import costs_of
from dl2_scheduler.replay.measured import MeasuredSpeeds
from dl2_scheduler.replay.scalings import Scalings
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.world_model.arrivals import SeenJobs

_UNKNOWN_SLOTS = 10.0  # that a job of which nothing is known takes with its minimum
_REMEMBERED = 100  # starts, joins and ends, each: their mean is known well enough, and follows the machine's load


class ObservedCluster:
    """An `ObservedCluster` knows of a cluster what its history has told so far.

    Args:
        history: the history of the cluster.

    Attributes:
        fitted: speeds, fitted to what jobs reported.
        samples: samples of an epoch, by type, as the type's last job told them.
        jobs: jobs that came.
        last: the last slot; None: there is none yet.
    """

    def __init__(self, history: History):
        self.fitted = FittedSpeeds()
        self.samples: dict[str, float] = {}
        self.jobs = SeenJobs()
        self.last: RecordedSlot | None = None
        self._history = history
        self._speeds = MeasuredSpeeds()
        self._scalings = Scalings(self._speeds.means, _REMEMBERED)
        self._ended = -1  # the last slot whose outcome was seen

    @property
    def cost(self) -> ScalingCost:
        """The cost of scaling, as far as the history tells."""
        return costs_of(self._scalings).scaling

    @property
    def present(self) -> Snapshot | None:
        """The last slot's snapshot, in which each job has its samples, if only guessed; None: there is none yet."""
        return None if self.last is None else with_samples(self.last.snapshot, self.samples, self.fitted)

    def catch_up(self) -> None:
        """Read what the history has got since the last time.

        What came of the last slot is known only when the next one has begun: it is read twice.
        """
        for slot in self._history.slots(after=self._ended):
            number = slot.snapshot.slot
            if self.last is None or number > self.last.snapshot.slot:
                self.fitted.observe(slot.snapshot.reports)
                told = [state.job for state in slot.snapshot.jobs if state.job.samples_known]
                self.samples |= {job.model: job.samples_per_epoch for job in told}
                self.jobs.observe(slot.snapshot)
            if slot.outcome is not None:
                self.jobs.ended(slot.snapshot, slot.outcome)
                self._speeds.observe(slot)
                self._scalings.observe(slot)
                self._ended = number
            self.last = slot


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
    return replace(job, samples_per_epoch=known.get(job.model, work / job.estimate))
