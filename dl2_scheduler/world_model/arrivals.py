"""This module draws days of jobs like those that came to a cluster."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.world_model.known_jobs import KnownJob

_REMEMBERED = 200  # jobs; what a cluster did long ago says little of tomorrow


def jobs_that_came(known: Iterable[KnownJob], most_jobs: int = _REMEMBERED) -> list[Job]:
    """Return the last jobs that came, by arrival, the first of them at time 0, as far as a scheduler may know of them.

    Of their epochs nobody knows more than what their owners said; but jobs that have ended may have needed more.

    Args:
        known: what a history has told of jobs.
        most_jobs: how many, at most.
    """
    jobs = sorted((_as_known(each) for each in known), key=lambda job: job.arrival)[-most_jobs:]
    return [replace(job, arrival=job.arrival - jobs[0].arrival) for job in jobs]


def _as_known(known: KnownJob) -> Job:
    job, needed = known.job, known.needed or 1.0
    if needed <= 1:
        return replace(job, epochs=job.estimate, epochs_estimate=None)
    return replace(job, epochs=needed * job.estimate, epochs_estimate=job.estimate)


def drawn_day(
    known: Iterable[KnownJob], until: float, most_jobs: int, seconds: float, random: np.random.Generator
) -> list[Job]:
    """Draw jobs that come as jobs came from some moment of the past on, which goes round; any job comes each time.

    Args:
        known: what a history has told of jobs; there is one.
        until: when the past ends, in seconds since the cluster began; after the last of them came.
        most_jobs: that come.
        seconds: length of the day, after which none comes.
        random: source of what is drawn.
    """
    jobs = list(known)
    came = jobs_that_came(jobs)
    whole = until - max(each.job.arrival for each in jobs) + came[-1].arrival
    moment = random.uniform(0, whole)
    once = np.sort((np.array([job.arrival for job in came]) - moment) % whole)
    times = [float(at + whole * round_) for round_ in range(-(-most_jobs // len(came))) for at in once]
    bodies = random.integers(len(came), size=most_jobs).tolist()
    return [
        replace(came[body], id=f"dream-{number}", arrival=at)
        for number, (at, body) in enumerate(zip(times[:most_jobs], bodies, strict=True))
        if at < seconds
    ]
