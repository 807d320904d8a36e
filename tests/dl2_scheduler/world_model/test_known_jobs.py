"""What is remembered of a cluster's jobs."""

import math
from dataclasses import replace

import pytest

from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot, SpeedReport
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.replay.measured import MeanSpeed
from dl2_scheduler.world_model import known_jobs
from dl2_scheduler.world_model.known_jobs import KnownJob, KnownJobs
from tests.dl2_scheduler.learning.test_live_learning import NODES, SLOT, job


def slot_of(number, *jobs):
    states = tuple(JobState(each) for each in jobs)
    return RecordedSlot(number * SLOT, "drf", Snapshot(number, SLOT, NODES, states), Allocation(), None)


def test_a_job_that_had_more_than_it_may_have_now_is_compared_with_its_type_all_the_same():
    fitted = FittedSpeeds()
    fitted.observe([SpeedReport("a0", "a", 3, 4, 20.0)])
    lowered = replace(job(0, 0.0), max_workers=2, max_servers=2)
    speeds = {(3, 4): MeanSpeed(40.0, 5, 5 * SLOT), (1, 1): MeanSpeed(2 * fitted.grid(lowered)[1, 1], 5, 5 * SLOT)}
    known = KnownJob(lowered, speeds)
    assert known.log_factor(fitted) == pytest.approx(math.log(2.0), abs=0.05)


def test_jobs_that_went_while_nobody_looked_are_forgotten_too(monkeypatch):
    monkeypatch.setattr(known_jobs, "_REMEMBERED", 3)
    known = KnownJobs()
    jobs = [replace(job(number, float(number)), id=f"a{number}") for number in range(6)]
    for number, each in enumerate(jobs):
        slot = slot_of(number, jobs[0], each) if number else slot_of(number, each)
        known.see(slot)
        known.observe(slot)
    assert [key[0] for key in known.by_key] == ["a0", "a4", "a5"], "the first is there still"
