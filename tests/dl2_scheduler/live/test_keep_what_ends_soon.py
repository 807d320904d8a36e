"""A job that would be done before its suspension had paid is not suspended."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES, Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.live.keep_what_ends_soon import keep
from dl2_scheduler.live.slot_decision import answer
from dl2_scheduler.live.slot_draft import SlotDraft
from tests.sweeps import examples

TASK = {"slots": 1.0}
START = 20.0


def state(name, before=(0, 0), left=10.0, least=(1, 1)):
    """A job of 10 epochs; it trains one a second while it runs."""
    return JobState(Job(name, 0.0, "m", 10.0, 5.0, TASK, TASK, 8, 8, *least), 10.0 - left, 1, *before)


def snapshot(*states, slots=(4, 4), speed=5.0):
    nodes = tuple(Node(f"n{n}", {"slots": float(count)}) for n, count in enumerate(slots))
    reports = tuple(SpeedReport(s.job.id, "m", s.servers, s.workers, speed) for s in states if s.workers)
    return Snapshot(3, 30.0, nodes, states, reports)


def decided(now, start=START, **grants):
    allocation = Allocation({name: Grant(*counts) for name, counts in grants.items()})
    room = FreeResources(now)
    for index, each in enumerate(now.jobs):
        counts = grants.get(each.job.id, (0, 0))
        assert counts == (0, 0) or room.give(index, *counts)
    return keep(SlotDraft(now, NodeRule.SPREAD, allocation, room), start)


def counts(draft):
    return {
        state.job.id: (grant.workers, grant.servers)
        for state, grant in zip(draft.snapshot.jobs, draft.grants, strict=True)
    }


@pytest.mark.parametrize(
    ("left", "start", "kept"), [(10, 5.1, True), (10, 4.9, False), (10, 0.0, False), (4, 2.5, True)]
)
def test_a_job_is_kept_where_two_starts_take_longer_than_what_it_needs(left, start, kept):
    now = snapshot(state("runs", (4, 4), left=left), state("waits"))
    found = decided(now, start, waits=(4, 4))
    assert counts(found) == ({"runs": (4, 4), "waits": (0, 0)} if kept else {"runs": (0, 0), "waits": (4, 4)})


def test_it_says_why():
    now = snapshot(state("runs", (3, 3)), state("waits"))
    grants = decided(now, waits=(4, 4)).allocation.grants
    assert counts(decided(now, waits=(4, 4))) == {"runs": (3, 3), "waits": (1, 1)}
    assert grants["runs"].reason == "kept instead of suspended: it ends in about 10 s, and a start takes 20 s"
    assert grants["waits"].reason == "1+1 instead of 4+4: runs soon ends, and is kept"


def test_running_jobs_come_before_those_that_would_begin():
    now = snapshot(state("soon", (2, 2)), state("new"), state("long", (2, 2), left=9.0))
    assert counts(decided(now, new=(3, 3), long=(1, 1))) == {"soon": (2, 2), "new": (1, 1), "long": (1, 1)}


@pytest.mark.parametrize("unknown", ["speed", "samples"])
def test_a_job_of_which_nobody_knows_its_end_is_suspended(unknown):
    runs = state("runs", (4, 4))
    if unknown == "samples":
        runs = replace(runs, job=replace(runs.job, samples_per_epoch=UNKNOWN_SAMPLES))
    now = snapshot(runs, state("waits"), speed=0.0 if unknown == "speed" else 5.0)
    assert counts(decided(now, waits=(4, 4)))["runs"] == (0, 0)


def test_where_nodes_have_gone_the_decision_stays():
    now = snapshot(state("runs", (4, 4)), state("waits"), slots=(4,))
    draft = decided(now, waits=(2, 2))
    assert counts(draft) == {"runs": (0, 0), "waits": (2, 2)}


def test_a_slot_is_decided_so():
    class ForTheNew:
        def allocate(self, snapshot, room):
            return Allocation({"waits": Grant(4, 4)})

    # its minimum is all that it has: it cannot shrink
    now = snapshot(state("runs", (4, 4), least=(4, 4)), state("waits", least=(4, 4)))
    assert counts(answer(ForTheNew(), now, NodeRule.SPREAD, start_seconds=START))["runs"] == (4, 4)
    assert counts(answer(ForTheNew(), now, NodeRule.SPREAD))["runs"] == (0, 0)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0.1, 60.0)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=6, max_size=6),
)
def test_whatever_was_decided_fits_and_keeps_minima(befores, wanted):
    states = [
        state(f"j{number}", (workers, servers) if workers and servers else (0, 0), left=min(left, 10.0))
        for number, (workers, servers, left) in enumerate(befores)
    ]
    now = snapshot(*states, slots=(5, 5, 5, 5), speed=1.0)
    room = FreeResources(now)
    grants = {
        each.job.id: Grant(*counts)
        for index, (each, counts) in enumerate(zip(states, wanted, strict=False))
        if all(counts) and room.give(index, *counts)
    }
    draft = keep(SlotDraft(now, NodeRule.SPREAD, Allocation(grants), room), START)
    again = FreeResources(now)
    for index, grant in enumerate(draft.grants):
        assert (grant.workers > 0) == (grant.servers > 0)
        assert not grant.workers or again.give(index, grant.workers, grant.servers)
        if states[index].workers and grants.get(states[index].job.id):
            assert grant.workers, "a running job that was granted something goes on"


def test_one_that_could_not_go_on_later_is_kept_also_where_others_that_end_soon_do_not_fit():
    """Nodes have gone: of two that the policy suspends, one would need more than there is."""
    soon, unsaved = state("soon", (4, 4)), replace(state("unsaved", (1, 1), left=10.0), saves=False)
    now = snapshot(soon, unsaved, slots=(4,))
    assert counts(decided(now)) == {"soon": (0, 0), "unsaved": (1, 1)}
    assert "could not go on later" in decided(now).allocation.grants["unsaved"].reason
