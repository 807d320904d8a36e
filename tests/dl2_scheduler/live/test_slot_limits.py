"""What of a decision is done in one slot: pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.slot_draft import SlotDraft
from dl2_scheduler.live.slot_limits import SlotLimits, changed_jobs, last_scalings, limit

ONE = {"slots": 1.0}


def snapshot_of(slots, *counts, slot=10, least=(1, 1)):
    """A cluster of one node whose jobs j0, j1, ... have these counts."""
    states = [
        JobState(
            Job(f"j{place}", 0.0, "m", 10.0, 1.0, ONE, ONE, min_workers=least[0], min_servers=least[1]),
            workers=workers,
            servers=servers,
        )
        for place, (workers, servers) in enumerate(counts)
    ]
    return Snapshot(slot, 20.0, (Node("n", {"slots": float(slots)}),), tuple(states))


def wish(*counts):
    return Allocation({f"j{place}": Grant(*given, "as wanted") for place, given in enumerate(counts)})


def draft_of(snapshot, allocation):
    return SlotDraft(snapshot, NodeRule.SPREAD, allocation, FreeResources(snapshot))


def done(snapshot, allocation, limits, scaled=None):
    found = limit(draft_of(snapshot, allocation), limits, scaled or {}).allocation
    return [(grant.workers, grant.servers) for grant in found.grants.values()], [
        grant.reason for grant in found.grants.values()
    ]


def test_within_the_limits_nothing_is_touched():
    snapshot, wanted = snapshot_of(16, (2, 2), (0, 0)), wish((4, 4), (4, 4))
    assert limit(draft_of(snapshot, wanted), SlotLimits(12, 1), {}).allocation is wanted
    assert changed_jobs(snapshot, wanted) == ["j0", "j1"]


@pytest.mark.parametrize(
    ("slots", "had", "wanted", "bound", "expected"),
    [
        (16, [(2, 2), (0, 0)], [(4, 4), (4, 4)], 6, [(2, 2), (3, 3)]),  # who has nothing comes first
        (8, [(4, 4), (0, 0)], [(2, 2), (2, 2)], 4, [(2, 4), (1, 1)]),  # half of the bound ends, so that half may start
        (8, [(4, 4), (0, 0)], [(0, 0), (4, 4)], 8, [(1, 3), (2, 2)]),  # a suspension in parts
        (8, [(1, 3), (2, 2)], [(0, 0), (4, 4)], 8, [(0, 0), (4, 4)]),
        (8, [(4, 4)], [(1, 1)], 4, [(1, 3)]),  # nothing is to start: all of it
        (16, [(8, 1)], [(2, 6)], 8, [(4, 5)]),  # fewer of the one, more of the other
    ],
)
def test_the_bound_of_a_slot(slots, had, wanted, bound, expected):
    counts, reasons = done(snapshot_of(slots, *had), wish(*wanted), SlotLimits(bound, 1))
    assert counts == expected
    for now, goal, reason in zip(counts, wanted, reasons, strict=True):
        assert reason.startswith("as wanted") == (now == goal)
        if now != goal:
            assert f"held at {now[0]}+{now[1]} instead of {goal[0]}+{goal[1]}: at most {bound} tasks" in reason


def test_a_minimum_over_the_bound_goes_alone():
    snapshot = snapshot_of(16, (0, 0), (0, 0), least=(3, 3))
    assert done(snapshot, wish((3, 3), (3, 3)), SlotLimits(4, 1))[0] == [(3, 3), (0, 0)]
    snapshot = snapshot_of(8, (3, 3), (0, 0), least=(3, 3))
    assert done(snapshot, wish((0, 0), (4, 4)), SlotLimits(4, 1))[0] == [(0, 0), (0, 0)]


def test_a_job_is_not_scaled_too_often_but_may_always_start():
    snapshot = snapshot_of(8, (2, 2), (0, 0))
    counts, reasons = done(snapshot, wish((1, 1), (3, 3)), SlotLimits(100, 3), {"j0": 8, "j1": 9})
    assert counts == [(2, 2), (2, 2)]  # what may not shrink leaves less room to what starts
    assert reasons[0].startswith("held at 2+2 instead of 1+1: scaled 2 slots ago, at least 3 lie between")
    assert "what others keep for now leaves no room" in reasons[1]
    assert done(snapshot, wish((1, 1), (3, 3)), SlotLimits(100, 3), {"j0": 7})[0] == [(1, 1), (3, 3)]


def test_what_fits_no_more_is_not_kept():
    snapshot = snapshot_of(4, (4, 4), (4, 4))
    assert done(snapshot, wish((1, 1), (1, 1)), SlotLimits(2, 5), {"j0": 9, "j1": 9})[0] == [(1, 1), (1, 1)]


def test_the_last_scaling_of_a_history():
    slots = [
        RecordedSlot(0.0, "drf", snapshot_of(16, *had, slot=slot), wish(*wanted), None)
        for slot, had, wanted in [
            (4, [(0, 0), (2, 2)], [(2, 2), (2, 2)]),
            (5, [(2, 2), (2, 2)], [(2, 2), (2, 2)]),
            (6, [(2, 2), (2, 2)], [(3, 2), (2, 2)]),
        ]
    ]
    assert last_scalings(slots) == {"j0": 6}


counts = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: pair if min(pair) else (0, 0))


@given(st.lists(st.tuples(counts, counts, st.integers(0, 10)), min_size=1, max_size=6), st.integers(2, 20))
def test_never_more_than_fits_nor_than_the_bound(jobs, bound):
    had, wanted = [job[0] for job in jobs], [job[1] for job in jobs]
    slots = max(sum(map(sum, had)), sum(map(sum, wanted)), 1)
    snapshot = snapshot_of(slots, *had)
    scaled = {f"j{place}": job[2] for place, job in enumerate(jobs)}
    found, _ = done(snapshot, wish(*wanted), SlotLimits(bound, 3), scaled)
    room = FreeResources(snapshot)
    assert all(room.give(number, *given) for number, given in enumerate(found))
    assert (
        sum(abs(a - b) for now, then in zip(found, had, strict=True) for a, b in zip(now, then, strict=True)) <= bound
    )
    for now, then, goal in zip(found, had, wanted, strict=True):
        assert now == (0, 0) or min(now) >= 1
        assert all(min(a, c) <= b <= max(a, c) for a, b, c in zip(then, now, goal, strict=True))


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=6), st.integers(2, 8))
def test_slot_by_slot_it_gets_there(jobs, bound):
    had, wanted = [job[0] for job in jobs], [job[1] for job in jobs]
    slots = max(sum(map(sum, had)), sum(map(sum, wanted)), 1)
    for slot in range(100):
        if had == wanted:
            return
        had, _ = done(snapshot_of(slots, *had, slot=slot), wish(*wanted), SlotLimits(bound, 1))
    assert had == wanted
