"""Speeds of jobs that tell how far they are in coarse steps, as a long epoch does in short slots."""

import math
from dataclasses import replace

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.replay.measured import MeanSpeed, MeasuredSpeed, MeasuredSpeeds, fit_speeds, measured_speeds
from dl2_scheduler.world_model.known_jobs import KnownJobs

TASK = {"slots": 1.0}
SAMPLES, SLOT = 90_000.0, 30.0
JOB = Job("a", 0.0, "m", 10.0, SAMPLES, TASK, TASK, 2, 2)
NODES = (Node("n0", {"slots": 8.0}),)
TOLD = (SpeedReport("a", "m", 1, 1, 5.0),)


def slot(number, epochs, trained, **done):
    """Job a goes on with 1+1, and tells its speed at both ends."""
    now = Snapshot(number, SLOT, NODES, (JobState(JOB, epochs, number, 1, 1),), TOLD)
    outcome = JobOutcome("a", 1, 1, trained, None)
    happened = SlotOutcome(number, [replace(outcome, **done)], TOLD, SLOT * number, SLOT * (number + 1))
    return RecordedSlot(SLOT * number, "drf", now, Allocation({"a": Grant(1, 1)}), happened)


def coarse(trained=(0.0, 0.0, 0.01, 0.0, 0.0, 0.01)):
    return [slot(number, sum(trained[:number]), each) for number, each in enumerate(trained)]


TRUE = 0.02 * SAMPLES / (6 * SLOT)


def test_slots_in_which_nothing_was_told_to_be_done_count():
    (row,) = [row for row in fit_speeds(coarse()).rows if row.observations]
    assert (row.samples_per_second, row.observations) == (pytest.approx(TRUE), 6)
    speeds = MeasuredSpeeds()
    for each in coarse():
        speeds.observe(each)
    assert speeds.means == {("m", 1, 1): pytest.approx(TRUE)}


def test_what_is_known_of_a_job_counts_them_too():
    known, fitted = KnownJobs(), FittedSpeeds()
    fitted.observe([replace(TOLD[0], samples_per_second=TRUE)])
    factors = []
    for each in coarse():
        known.see(each)
        known.observe(each)
        factors.append(known.by_key["a", 0.0].log_factor(fitted))
    assert factors[:2] == [None, None], "it has not told yet that it trains"
    assert factors[-1] == pytest.approx(0.0)


def test_a_configuration_that_never_got_further_was_not_measured():
    with pytest.raises(BadInput, match="no job has told its speed"):
        fit_speeds(coarse((0.0, 0.0)))


@pytest.mark.parametrize("done", [{"lost": 0.5}, {"finished": 20.0}])
def test_a_job_that_was_set_back_or_of_whose_end_nobody_heard_tells_nothing(done):
    assert not list(measured_speeds(slot(0, 1.0, 0.0, **done)))
    assert [each.samples_per_second for each in measured_speeds(slot(0, 1.0, 0.0))] == [0.0]


def test_a_mean_is_that_of_all_samples_over_all_seconds_with_its_error():
    def mean(*slots):
        found = MeanSpeed()
        for speed, seconds in slots:
            found.add(MeasuredSpeed("a", "m", 1, 1, speed, seconds))
        return found

    found = mean((9.0, 30.0), (10.0, 30.0), (11.0, 30.0))
    assert (found.samples_per_second, found.slots, found.seconds) == (pytest.approx(10.0), 3, 90.0)
    assert found.error == pytest.approx(1 / 3**0.5 / 10)
    assert mean((10.0, 30.0), (40.0, 10.0)).samples_per_second == pytest.approx(700 / 40)
    assert math.isnan(mean((9.0, 30.0)).error)
    assert math.isnan(mean((0.0, 30.0), (0.0, 30.0)).error)
