"""This module draws days of jobs like those that came to a cluster."""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.ranges import MOST_EPOCHS
from dl2_scheduler.world_model.known_jobs import KnownJob

_REMEMBERED = 200  # jobs; what a cluster did long ago says little of tomorrow


def jobs_that_came(known: Iterable[KnownJob], longest_gap: float = math.inf) -> list[Job]:
    """Return the last jobs that came, by arrival, the first of them at time 0, as far as a scheduler may know of them.

    Of their epochs nobody knows more than what their owners said; but of jobs that have ended what they needed, which
    may be more, or less where their scripts stopped early.

    Args:
        known: what a history has told of jobs.
        longest_gap: seconds between two of them, at most: what passed beyond that is left out, as nothing happens in
            it. A holiday may be as long, or a clock that was years ahead when a job came.
    """
    jobs = sorted((_as_known(each) for each in known), key=lambda job: job.arrival)[-_REMEMBERED:]
    gaps = [min(later.arrival - job.arrival, longest_gap) for job, later in pairwise(jobs)]
    times = [0.0, *accumulate(gaps)]
    return [replace(job, arrival=times[number]) for number, job in enumerate(jobs)]


def _as_known(known: KnownJob) -> Job:
    job, needed = known.job, known.needed
    if not needed:
        return replace(job, epochs=job.estimate, epochs_estimate=None)
    return replace(job, epochs=min(needed * job.estimate, MOST_EPOCHS), epochs_estimate=job.estimate)


def drawn_day(
    known: Iterable[KnownJob], until: float, most_jobs: int, seconds: float, random: np.random.Generator
) -> list[Job]:
    """Draw jobs that come as jobs came from some moment of the past on, which goes round; any job comes each time.

    Of a time in which none came as much counts as the day is long: else most days might be empty.

    Args:
        known: what a history has told of jobs; there is one.
        until: when the past ends, in seconds since the cluster began; after the last of them came.
        most_jobs: that come.
        seconds: length of the day, after which none comes.
        random: source of what is drawn.
    """
    jobs = list(known)
    came = jobs_that_came(jobs, seconds)
    whole = min(until - max(each.job.arrival for each in jobs), seconds) + came[-1].arrival
    moment = random.uniform(0, whole)
    once = np.sort((np.array([job.arrival for job in came]) - moment) % whole)
    times = [float(at + whole * round_) for round_ in range(-(-most_jobs // len(came))) for at in once]
    bodies = random.integers(len(came), size=most_jobs).tolist()
    return [
        replace(came[body], id=f"dream-{number}", arrival=at)
        for number, (at, body) in enumerate(zip(times[:most_jobs], bodies, strict=True))
        if at < seconds
    ]
