"""No job waits forever, whatever a policy decides."""

from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.serve_the_waiting import MOST_SLOTS, Waited, count_waiting, key_of, serve
from dl2_scheduler.live.slot_draft import SlotDraft
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import LIVE_NAMES, make_live_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.simulator import SimulatedCluster
from tests.dl2_scheduler.learning.test_live_learning import SLOT, SPEEDS
from tests.dl2_scheduler.live.test_shrink_before_suspend import clusters, counts, snapshot, state
from tests.sweeps import examples

ONE = {"slots": 1.0}
LONG = dict.fromkeys((("gang", 0.0), ("small", 0.0)), MOST_SLOTS)


def served(now: Snapshot, decided: Allocation, waited: Waited) -> SlotDraft:
    return serve(SlotDraft(now, NodeRule.SPREAD, decided, FreeResources(now)), waited)


def test_a_gang_that_was_passed_for_too_long_begins_and_others_shrink_for_it():
    now = snapshot(state("young", (6, 6)), state("gang", least=(4, 4)), slots=(12,))
    decided = Allocation({"young": Grant(6, 6, "all that it can use"), "gang": Grant(0, 0, "waits")})
    assert served(now, decided, {("gang", 0.0): MOST_SLOTS - 1}).allocation is decided
    draft = served(now, decided, LONG)
    found, room = draft.allocation, draft.room
    assert counts(found) == {"young": (2, 2), "gang": (4, 4)}
    assert (room.workers(0), room.workers(1)) == (2, 4)
    assert found.grants["young"].reason == ("2+2 instead of 6+6: gang has waited for too long; all that it can use")
    assert found.grants["gang"].reason == (
        "has its minimum until it ends, as it was granted nothing in 50 slots in a row; waits"
    )


def test_the_youngest_is_suspended_where_minima_do_not_fit_and_of_two_that_wait_the_older_begins():
    jobs = state("first", (2, 2)), state("gang", least=(4, 4)), state("small", least=(2, 2)), state("last", (1, 1))
    decided = Allocation({"first": Grant(4, 4), "gang": Grant(0, 0), "small": Grant(0, 0), "last": Grant(1, 1)})
    found = served(snapshot(*jobs, slots=(10,)), decided, LONG).allocation
    assert counts(found) == {"first": (1, 1), "gang": (4, 4), "small": (0, 0), "last": (0, 0)}
    found = served(snapshot(*jobs, slots=(6,)), decided, LONG).allocation
    assert counts(found) == {"first": (1, 1), "gang": (0, 0), "small": (2, 2), "last": (0, 0)}, "gang cannot fit"


def test_a_job_that_could_not_go_on_later_is_not_the_one_that_goes():
    """It would train on all the same, and the one that waits would find no room."""
    jobs = state("saves", (1, 1)), replace(state("unsaved", (1, 1)), saves=False), state("gang")
    decided = Allocation({"saves": Grant(1, 1), "unsaved": Grant(1, 1), "gang": Grant(0, 0)})
    found = served(snapshot(*jobs, slots=(4,)), decided, LONG).allocation
    assert counts(found) == {"saves": (0, 0), "unsaved": (1, 1), "gang": (1, 1)}
    assert served(snapshot(*jobs[1:], slots=(3,)), decided, LONG).allocation is decided, "there is no room for it"


def test_what_a_policy_grants_anyway_stays_as_it_is():
    now = snapshot(state("gang", (4, 4), least=(4, 4)), state("young", (4, 4)))
    decided = Allocation({"gang": Grant(6, 4), "young": Grant(2, 2)})
    assert served(now, decided, LONG).allocation is decided


def test_slots_are_counted_in_a_row_until_it_is_owed():
    now, nothing = snapshot(state("a")), Allocation()
    waited = {}
    for _ in range(3):
        waited = count_waiting(waited, now, nothing)
    a, ended = ("a", 0.0), ("ended", 0.0)
    assert waited == {a: 3}
    assert count_waiting(waited, now, Allocation({"a": Grant(1, 1)})) == {a: 0}
    assert count_waiting({a: MOST_SLOTS, ended: 3}, now, Allocation({"a": Grant(1, 1)})) == {a: MOST_SLOTS}


def test_who_was_served_is_owed_its_minimum_though_what_is_read_of_a_history_begins_later():
    now = snapshot(state("young", (6, 6)), state("gang", least=(4, 4)), slots=(12,))
    found = served(now, Allocation({"young": Grant(6, 6), "gang": Grant(0, 0, "waits")}), LONG).allocation
    assert count_waiting({}, now, found) == {("young", 0.0): 0, ("gang", 0.0): MOST_SLOTS}


def test_a_job_that_is_submitted_under_a_former_ones_name_has_not_waited():
    """The former was stopped while it was owed its minimum: others would be suspended for the new one at once."""
    waited = {("gang", 0.0): MOST_SLOTS}
    now = snapshot(state("young", (1, 1)), state("gang", least=(4, 4), arrival=100.0), slots=(8,))
    decided = Allocation({"young": Grant(4, 4), "gang": Grant(0, 0)})
    assert served(now, decided, waited).allocation is decided
    assert count_waiting(waited, now, decided) == {("young", 0.0): 0, ("gang", 100.0): 1}


@settings(deadline=None, max_examples=examples(60))
@given(clusters(), st.sampled_from(LIVE_NAMES), st.data())
def test_whatever_a_policy_decides_it_fits_and_the_oldest_that_can_begin_does(now, name, data):
    decided = make_live_policy(name).allocate(now, FreeResources(now))
    owed = data.draw(st.sets(st.sampled_from([each.job.id for each in now.jobs])))
    found = served(now, decided, {key_of(each.job): MOST_SLOTS for each in now.jobs if each.job.id in owed}).allocation
    room, alone = FreeResources(now), FreeResources(now)
    for number, each in enumerate(now.jobs):
        granted = counts(found).get(each.job.id, (0, 0))
        assert granted == (0, 0) or (granted[0] >= each.job.min_workers and granted[1] >= each.job.min_servers)
        assert room.give(number, *granted)
        if each.job.id in owed and alone.give_least(number):
            assert granted != (0, 0)


class SmallOnly:
    """Whoever asks for more than one of each waits."""

    def allocate(self, now, room):
        for number, least in enumerate(room.least):
            if least == (1, 1):
                room.give(number, 4, 4) or room.give(number, 1, 1)
        return room.allocation()


def small(number):
    return Job(f"small-{number}", number * 3 * SLOT, "a", 20.0, 1000.0, ONE, ONE, 4, 4)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
def test_a_loop_serves_a_gang_that_its_policy_passes_for_ever_also_after_a_restart(tmp_path, restarts):
    gang = Job("gang", 0.0, "a", 8.0, 200.0, ONE, ONE, 4, 4, min_workers=4, min_servers=4)
    cluster = SimulatedCluster([gang, *map(small, range(60))], (Node("n", {"slots": 8.0}),), SPEEDS, SLOT)
    policies = Policies(lambda name: Drf() if name == "drf" else SmallOnly(), "drf", tmp_path, "small-only")
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history)
        for slot in range(2 * MOST_SLOTS):
            if restarts and slot in (MOST_SLOTS // 2, MOST_SLOTS + 1):
                loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history)
            loop.slot()
        told = history.of("gang", 0.0, 1000)
    assert [each.workers for each in told[:MOST_SLOTS]] == [0] * MOST_SLOTS
    assert told[MOST_SLOTS:]
    assert {(each.workers, each.servers) for each in told[MOST_SLOTS:]} == {(4, 4)}
    assert len(told) < 2 * MOST_SLOTS, "it has ended"
