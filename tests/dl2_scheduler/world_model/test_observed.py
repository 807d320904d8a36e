"""What a cluster's history tells of its world, as it grows."""

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.guard.program import Comparing
from dl2_scheduler.learning.live.exploring_program import ExplorationSearch
from dl2_scheduler.live.serve_the_waiting import key_of
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost
from dl2_scheduler.world_model.observed import ObservedCluster
from tests.dl2_scheduler.learning.test_live_learning import NODES, SLOT
from tests.dl2_scheduler.recorded_starts import ALL, REPORTS, decided, present, started, wide


def test_costs_are_those_of_the_slots_that_have_ended_each_counted_once(history):
    observed = ObservedCluster(history)
    decided(history, 0, JobState(wide(8, 8.0)))
    observed.catch_up()
    assert observed.cost == MEASURED
    started(history, 0, 30.0)  # the same slot: now its outcome is known
    for _ in range(2):
        observed.catch_up()
        assert observed.cost == ScalingCost(30.0, MEASURED.change, 30.0)
    present(history, 1)  # the scheduler ended before this slot did
    for slot in (2, 3):
        started(history, slot, 42.0, number=2 * slot)
        observed.catch_up()
    assert observed.cost.start == pytest.approx((30 + 42 + 42) / 3)
    assert [report[0] for report in observed.fitted._reports["a"].values()] == [4] * 4, "and each report, too"


def test_a_slot_after_one_that_was_cut_short_is_counted_once_however_often_one_looks(history):
    """The learner looks twice: before it compares policies, and before it dreams."""
    observed = ObservedCluster(history)
    for slot in (0, 1):  # the scheduler ended before slot 0 did
        present(history, slot)
        for _ in range(3):
            observed.catch_up()
            assert observed.last.snapshot.slot == slot
    runs, waits = (key_of(state.job) for state in observed.last.snapshot.jobs)
    assert (runs[0], waits[0]) == ("a0", "a2")
    assert observed.waited == {runs: 0, waits: 1}, "of slot 0"
    assert [report[0] for report in observed.fitted.reports["a"].values()] == [2] * 4


def test_the_present_says_for_how_long_a_job_has_been_starting(history):
    observed, found = ObservedCluster(history), []
    for slot, starting in enumerate((False, True, True, False, True)):
        decided(history, slot, JobState(wide(8, 8.0), starting=starting), JobState(wide(9, 8.0)))
        for _ in range(2):
            observed.catch_up()
            found.append([state.starting_seconds for state in observed.present.jobs])
    assert [first for first, _ in found[::2]] == [0.0, SLOT, 2 * SLOT, 0.0, SLOT]
    assert found[::2] == found[1::2], "however often one looks"
    assert {second for _, second in found} == {0.0}


def test_slots_are_as_long_as_they_are_now_also_after_a_start_with_another_length(history):
    """Futures are played in such slots: a job that waits would seem to start within seconds, and no end be in reach."""
    lengths, began, observed, found = (30.0, 30.0, 30.0, 1200.0, 1200.0, 1200.0), 0.0, ObservedCluster(history), []
    for slot, length in enumerate(lengths):
        state = JobState(wide(8, 8.0), slots_run=slot, workers=4, servers=4)
        history.decided(1e9 + began, "drf", Snapshot(slot, length, NODES, (state,), REPORTS), Allocation({"a8": ALL}))
        observed.catch_up()
        found.append(observed.slot_seconds)
        done = JobOutcome("a8", 4, 4, 1.0, None)
        history.happened(SlotOutcome(slot, (done,), (), began, began + length))
        began += length + 1.0
    assert found == [30.0, 30.0, 31.0, 1200.0, 1200.0, 1201.0]


def test_guard_and_exploring_begin_with_the_last_slots_of_a_long_history(history, monkeypatch):
    monkeypatch.setattr("dl2_scheduler.world_model.observed.RECENT", (2, 100))
    for slot in range(4):
        started(history, slot, 30.0)
    programs = [
        Comparing(history, NodeRule.SPREAD, "drf"),
        ExplorationSearch(history, NodeRule.SPREAD),
    ]
    started(history, 4, 30.0)
    for program in programs:
        assert [slot.snapshot.slot for slot in program._observed.new_slots()] == [2, 3, 4]
