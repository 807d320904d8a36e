"""The guard's futures: scaling costs in them what it has cost in the cluster's own history."""

from contextlib import closing
from dataclasses import replace

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.guard.decision import GuardSettings, PolicyStanding, seen, verdict
from dl2_scheduler.guard.program import Comparing
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost
from tests.dl2_scheduler.learning.test_live_learning import NODES, SLOT, job

ALL = Grant(4, 4)
SETTINGS = GuardSettings(margin=0.1, slots=1)
REPORTS = tuple(SpeedReport("a0", "a", n, n, 10.0 * n) for n in (1, 2, 3, 4))


class Patient:
    """The oldest has all."""

    def allocate(self, snapshot, room):
        return Allocation({state.job.id: NOTHING if number else ALL for number, state in enumerate(snapshot.jobs)})


class Restless:
    """Each job in its turn has all, for a slot: the others are suspended and start again."""

    def allocate(self, snapshot, room):
        turn = snapshot.slot % len(snapshot.jobs)
        return Allocation({state.job.id: NOTHING if n != turn else ALL for n, state in enumerate(snapshot.jobs)})


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


@pytest.fixture
def history(tmp_path):
    with closing(History(tmp_path / HISTORY_FILE)) as found:
        yield found


def compared(history):
    return Comparing(history, NodeRule.SPREAD, f"{__name__}:Patient").compared(f"{__name__}:Restless")


@pytest.mark.parametrize(("start", "falls"), [(None, False), (9.0, False), (50.0, True)])
def test_what_starts_cost_decides_whether_a_policy_may_restart_jobs_all_the_time(history, start, falls):
    started(history, 0, start)
    present(history, 1)
    found = compared(history)
    assert found.baseline == pytest.approx((20 + 24) / 2, abs=1.0), "it starts each job once"
    assert bool(verdict(seen(PolicyStanding(), found, SETTINGS), SETTINGS, "drf")) == falls, found


def test_costs_are_those_of_the_slots_that_have_ended_each_counted_once(history):
    comparing = Comparing(history, NodeRule.SPREAD, "drf")
    decided(history, 0, JobState(wide(8, 8.0)))
    comparing.compared("drf")
    assert comparing.cost == MEASURED
    started(history, 0, 30.0)  # the same slot: now its outcome is known
    for _ in range(2):
        comparing.compared("drf")
        assert comparing.cost == ScalingCost(30.0, MEASURED.change, 30.0)
    present(history, 1)  # the scheduler ended before this slot did
    for slot in (2, 3):
        started(history, slot, 42.0, number=2 * slot)
        comparing.compared("drf")
    assert comparing.cost.start == pytest.approx((30 + 42 + 42) / 3)
    assert [report[0] for report in comparing._fitted._reports["a"].values()] == [4] * 4, "and each report, too"
