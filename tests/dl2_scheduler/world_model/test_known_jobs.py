"""What is remembered of a cluster's jobs."""

from dataclasses import replace

from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.world_model import known_jobs
from dl2_scheduler.world_model.known_jobs import KnownJobs
from tests.dl2_scheduler.learning.test_live_learning import NODES, SLOT, job


def slot_of(number, *jobs):
    states = tuple(JobState(each) for each in jobs)
    return RecordedSlot(number * SLOT, "drf", Snapshot(number, SLOT, NODES, states), Allocation(), None)


def test_jobs_that_went_while_nobody_looked_are_forgotten_too(monkeypatch):
    monkeypatch.setattr(known_jobs, "_REMEMBERED", 3)
    known = KnownJobs()
    jobs = [replace(job(number, float(number)), id=f"a{number}") for number in range(6)]
    for number, each in enumerate(jobs):
        slot = slot_of(number, jobs[0], each) if number else slot_of(number, each)
        known.see(slot)
        known.observe(slot)
    assert [key[0] for key in known.by_key] == ["a0", "a4", "a5"], "the first is there still"
