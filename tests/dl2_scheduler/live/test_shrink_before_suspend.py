"""Jobs shrink before any is suspended."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.live.shrink_before_suspend import spare
from dl2_scheduler.live.slot_draft import SlotDraft
from dl2_scheduler.policies.registry import LIVE_NAMES, make_live_policy
from tests.sweeps import examples

TASK = {"slots": 1.0}


def state(name, before=(0, 0), least=(1, 1), most=(8, 8), arrival=0.0):
    job = Job(name, arrival, "m", 10.0, 1.0, TASK, TASK, *most, *least)
    return JobState(job, 1.0, 1, *before)


def snapshot(*states, slots=(8, 8)):
    return Snapshot(3, 30.0, tuple(Node(f"n{n}", {"slots": float(count)}) for n, count in enumerate(slots)), states)


def kept(now, decided, rule=NodeRule.SPREAD):
    draft = spare(SlotDraft(now, rule, decided, FreeResources(now, rule)))
    found, room = draft.allocation, draft.room
    given = [(room.workers(number), room.servers(number)) for number in range(len(now.jobs))]
    assert found is decided or given == list(counts(found).values()), "the room is filled with what was found"
    return found


def counts(allocation):
    return {name: (grant.workers, grant.servers) for name, grant in allocation.grants.items()}


def test_what_suspends_nobody_stays_as_it_was_decided():
    now = snapshot(state("a", (2, 2)), state("b"))
    decided = Allocation({"a": Grant(8, 8), "b": Grant(0, 0)})
    draft = SlotDraft(now, NodeRule.SPREAD, decided, FreeResources(now))
    assert spare(draft) is draft


def test_others_shrink_for_a_running_job():
    now = snapshot(state("old", (2, 2)), state("young", (4, 4), least=(2, 1)))
    decided = Allocation({"old": Grant(8, 8, "all that it can use"), "young": Grant(0, 0, "waits")})
    found = kept(now, decided)
    assert counts(found) == {"old": (7, 6), "young": (2, 1)}
    assert found.grants["young"].reason == "kept at its minimum instead of suspended: others shrink first; waits"
    assert found.grants["old"].reason == "7+6 instead of 8+8, so that young is not suspended; all that it can use"


def test_a_job_that_only_starts_is_not_ended_for_others():
    starts = replace(state("young", least=(2, 1)), starting=True)
    decided = Allocation({"old": Grant(8, 8), "young": Grant(0, 0)})
    assert counts(kept(snapshot(state("old", (2, 2)), starts), decided)) == {"old": (7, 6), "young": (2, 1)}
    assert kept(snapshot(state("old", (2, 2)), replace(starts, starting=False)), decided) is decided


def test_a_job_is_suspended_where_all_minima_do_not_fit():
    now = snapshot(state("a", (2, 2), (4, 4)), state("b", (4, 4), (4, 4)), state("c", (1, 1)), slots=(16,))
    decided = Allocation({"a": Grant(8, 8), "b": Grant(0, 0), "c": Grant(0, 0)})
    assert counts(kept(now, decided)) == {"a": (4, 4), "b": (4, 4), "c": (0, 0)}
    smaller = snapshot(*now.jobs, slots=(15,))
    assert counts(kept(smaller, Allocation({**decided.grants, "a": Grant(8, 7)}))) == {
        "a": (7, 6),
        "b": (0, 0),
        "c": (1, 1),
    }


def test_a_policy_may_start_a_job_in_the_place_of_what_others_have_over_their_minima():
    now = snapshot(state("new"), state("runs", (3, 3)), slots=(4,))
    decided = Allocation({"new": Grant(2, 2), "runs": Grant(0, 0)})
    assert counts(kept(now, decided)) == {"new": (1, 1), "runs": (1, 1)}


@st.composite
def clusters(draw):
    states = []
    for number in range(draw(st.integers(1, 6))):
        most = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        least = draw(st.integers(1, most[0])), draw(st.integers(1, most[1]))
        states.append(state(f"j{number}", draw(st.sampled_from([(0, 0), least, most])), least, most, float(number)))
    return snapshot(*states, slots=draw(st.lists(st.integers(1, 8), min_size=1, max_size=4)))


@settings(deadline=None, max_examples=examples(60))
@given(clusters(), st.sampled_from(LIVE_NAMES), st.sampled_from([NodeRule.SPREAD, NodeRule.PACK]))
def test_whatever_a_policy_decides(now, name, rule):
    decided = make_live_policy(name).allocate(now, FreeResources(now, rule))
    found = kept(now, decided, rule)
    room = FreeResources(now, rule)
    wanted = counts(decided)
    for number, each in enumerate(now.jobs):
        given_, job = counts(found)[each.job.id], each.job
        assert given_ == (0, 0) or (job.min_workers <= given_[0] and job.min_servers <= given_[1])
        most = wanted[job.id] if wanted[job.id] != (0, 0) else (job.min_workers, job.min_servers)
        assert given_[0] <= most[0]
        assert given_[1] <= most[1]
        assert given_ != (0, 0) or wanted[job.id] == (0, 0), "nobody is suspended for it"
        assert room.give(number, *given_), "one slot each: it fits in any order"
    minima = sum(sum(room.least[n]) for n, each in enumerate(now.jobs) if counts(found)[each.job.id] != (0, 0))
    for number, each in enumerate(now.jobs):
        if each.workers and counts(found)[each.job.id] == (0, 0):
            assert minima + sum(room.least[number]) > sum(node.capacity["slots"] for node in now.nodes)
