"""Histories in which jobs that need all nodes start, wait, and are looked at."""

from dataclasses import replace

from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, JobState, Snapshot, SpeedReport
from tests.dl2_scheduler.learning.test_live_learning import NODES, SLOT, job

ALL = Grant(4, 4)
REPORTS = tuple(SpeedReport("a0", "a", n, n, 10.0 * n) for n in (1, 2, 3, 4))


def wide(number, epochs):
    """A job that needs all nodes."""
    return replace(job(number, float(number)), epochs=epochs, min_workers=4, min_servers=4)


def decided(history, slot, *states):
    grants = {state.job.id: NOTHING if number else ALL for number, state in enumerate(states)}
    history.decided(1e9 + slot * SLOT, "drf", Snapshot(slot, SLOT, NODES, states, REPORTS), Allocation(grants))


def started(history, slot, seconds, number=8):
    """A slot in which a job began; it trained after so many seconds."""
    decided(history, slot, JobState(wide(number, 8.0)))
    began = slot * SLOT
    since = None if seconds is None else began + seconds
    done = JobOutcome(f"a{number}", 4, 4, 1.0, None, since=since)
    history.happened(SlotOutcome(slot, (done,), (), began, began + SLOT))


def present(history, slot):
    """A long job runs, a short one waits."""
    decided(history, slot, JobState(wide(0, 240.0), 0.0, 3, 4, 4), JobState(wide(2, 48.0)))
