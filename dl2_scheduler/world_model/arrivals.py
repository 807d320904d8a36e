"""This module remembers the jobs that came to a cluster, and draws days of jobs like them."""

from dataclasses import replace

import numpy as np

from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobId, Snapshot

_REMEMBERED = 200  # jobs; what a cluster did long ago says little of tomorrow


class SeenJobs:
    """`SeenJobs` are the last jobs that came to a cluster, as far as a scheduler may know of them."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, Job] = {}
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def observe(self, snapshot: Snapshot) -> None:
        """Take in the jobs of a slot: of their epochs nobody knows more than what their owners say."""
        self._now = (snapshot.slot + 1) * snapshot.slot_seconds
        for state in snapshot.jobs:
            self._jobs[state.job.id] = replace(state.job, epochs=state.job.estimate, epochs_estimate=None)
        for id_ in list(self._jobs)[:-_REMEMBERED]:
            del self._jobs[id_]

    def ended(self, snapshot: Snapshot, outcome: SlotOutcome) -> None:
        """Take in what came of the slot: a job may need more epochs than its owner said; one may also be stopped."""
        for state, done in zip(snapshot.jobs, outcome.jobs, strict=True):
            epochs, estimate = state.epochs_done + done.epochs, state.job.estimate
            if done.finished is not None and epochs > estimate:
                self._jobs[state.job.id] = replace(self._jobs[state.job.id], epochs=epochs, epochs_estimate=estimate)

    def past(self, most_jobs: int = _REMEMBERED) -> list[Job]:
        """Return the last jobs that came, by arrival, the first of them at time 0."""
        jobs = sorted(self._jobs.values(), key=lambda job: job.arrival)[-most_jobs:]
        return [replace(job, arrival=job.arrival - jobs[0].arrival) for job in jobs]

    def day(self, most_jobs: int, seconds: float, random: np.random.Generator) -> list[Job]:
        """Draw jobs that come as jobs came from some moment of the past on, which goes round; any job comes each time.

        Args:
            most_jobs: that come.
            seconds: length of the day, after which none comes.
            random: source of what is drawn.
        """
        seen = self.past()
        whole = self._now - min(job.arrival for job in self._jobs.values())
        moment = random.uniform(0, whole)
        once = np.sort((np.array([job.arrival for job in seen]) - moment) % whole)
        times = [float(at + whole * round_) for round_ in range(-(-most_jobs // len(seen))) for at in once]
        bodies = random.integers(len(seen), size=most_jobs).tolist()
        return [
            replace(seen[body], id=f"dream-{number}", arrival=at)
            for number, (at, body) in enumerate(zip(times[:most_jobs], bodies, strict=True))
            if at < seconds
        ]
