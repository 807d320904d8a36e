"""Which jobs explore in a slot, and which never do: pure."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.placement import answer_checks
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, SpeedReport
from dl2_scheduler.live.exploration.step import ExplorationTerms, explore
from dl2_scheduler.live.exploration.telling import TellingConfiguration
from dl2_scheduler.live.slot_draft import SlotDraft
from dl2_scheduler.live.slot_limits import SlotLimits, limit
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes, snapshot

PLENTY = ExplorationTerms(allowed=1e9)


def configuration(workers, servers, gain=10.0, model="even", speed=1.0, now=((2, 2),)):
    relative = tuple((*at, speed) for at in now)
    return TellingConfiguration(model, servers, workers, relative, 0.35, gain)


def runs(name, workers=2, servers=2, epochs=1000.0, **fields):
    state = JobState(job(name, epochs=epochs, **{"samples_per_epoch": 2.0, **fields}), 1.0, 1, workers, servers)
    return state, SpeedReport(name, state.job.model, servers, workers, 2.0)


def running(*each, cpus=(8,)):
    """A cluster in which each job of `runs` goes on as it does."""
    states, reports = zip(*each, strict=True)
    seen = snapshot(states, nodes(*({"cpu": count} for count in cpus)), tuple(reports))
    return draft_of(seen, {state.job.id: Grant(state.workers, state.servers, "as wanted") for state in states})


def draft_of(seen, grants):
    room = FreeResources(seen)
    for index, state in enumerate(seen.jobs):
        grant = grants[state.job.id]
        assert room.give(index, grant.workers, grant.servers)
    return SlotDraft(seen, NodeRule.SPREAD, Allocation(grants), room)


def explored(draft, *telling, terms=PLENTY, permitted=lambda draft: True):
    """What jobs get that explore, and what each is charged."""
    found, charges = explore(draft, telling, terms, permitted)
    return {name: (found.allocation.of(name).workers, found.allocation.of(name).servers) for name in charges}, charges


def test_a_running_job_explores_and_says_so():
    found, charges = explore(running(runs("a")), [configuration(3, 1)], PLENTY, lambda draft: True)
    grant = found.allocation.of("a")
    assert (grant.workers, grant.servers, grant.instead) == (3, 1, (2, 2))
    assert grant.reason == (
        "3+1 instead of 2+2 for this slot, to learn: speeds of even there are known within ±35%; as wanted"
    )
    assert charges == {"a": pytest.approx(4 / 8 * 100.0)}
    assert found.allocation.without_exploration.of("a") == Grant(2, 2, grant.reason)


def test_what_is_charged_is_the_larger_share_and_what_the_way_back_costs():
    fewer = explored(running(runs("a")), configuration(1, 1), terms=ExplorationTerms(1e9, scaling_seconds=5.0))
    assert fewer == ({"a": (1, 1)}, {"a": pytest.approx(4 / 8 * 105.0)})
    more = explored(running(runs("a")), configuration(4, 2), terms=ExplorationTerms(1e9, slots=3, scaling_seconds=5.0))
    assert more == ({"a": (4, 2)}, {"a": pytest.approx(6 / 8 * 305.0)})


@pytest.mark.parametrize(
    ("why", "each", "told"),
    [
        ("over its maximum", runs("a", max_workers=2), configuration(3, 1)),
        ("under its minimum", runs("a", min_servers=2), configuration(3, 1)),
        ("no room", runs("a"), configuration(4, 4)),
        ("it has them", runs("a"), configuration(2, 2)),
        ("another type", runs("a"), configuration(3, 1, model="flat")),
        ("its own speed is not known", (runs("a")[0], SpeedReport("b", "even", 2, 2, 2.0)), configuration(3, 1)),
        ("it has been scaled since", (runs("a")[0], SpeedReport("a", "even", 1, 2, 2.0)), configuration(3, 1)),
        ("it ends soon", runs("a", epochs=200.0), configuration(3, 1)),
        ("its samples are not known", runs("a", samples_per_epoch=1.0), configuration(3, 1)),
        ("it starts", (replace(runs("a")[0], workers=0, servers=0, starting=True), runs("a")[1]), configuration(3, 1)),
        ("it loses more than is gained", runs("a"), configuration(3, 1, gain=0.7, speed=0.2)),
        ("nobody asked from there", runs("a"), configuration(3, 1, now=((1, 1),))),
    ],
)
def test_who_does_not_explore(why, each, told):
    state, report = each
    seen = snapshot([state], nodes({"cpu": 6}), (report,))
    grants = {"a": Grant(max(state.workers, 1), max(state.servers, 1))}
    assert explored(draft_of(seen, grants), told) == ({}, {}), why


def test_a_job_explores_that_would_lose_less_than_is_gained():
    assert explored(running(runs("a")), configuration(3, 1, gain=0.9, speed=0.2))[0]


def test_nobody_explores_while_a_job_waits():
    state, report = runs("a")
    waits = JobState(job("b"))
    seen = snapshot([state, waits], nodes({"cpu": 4}), (report,))
    draft = SlotDraft(seen, NodeRule.SPREAD, Allocation({"a": Grant(2, 2), "b": Grant(0, 0)}), FreeResources(seen))
    assert draft.room.give(0, 2, 2)
    assert explored(draft, configuration(3, 1)) == ({}, {})


def test_a_job_that_the_policy_scales_does_not_explore():
    state, report = runs("a")
    seen = snapshot([state], nodes({"cpu": 8}), (report,))
    assert explored(draft_of(seen, {"a": Grant(3, 2)}), configuration(3, 1)) == ({}, {})


def test_the_budget_decides_who_explores():
    jobs = [runs(f"j{number}", model=model) for number, model in enumerate(SPEEDS.models)]
    telling = [configuration(3, 1, gain, model) for model, gain in zip(SPEEDS.models, (5.0, 9.0, 7.0), strict=True)]
    draft = running(*jobs, cpus=(8, 8))
    share = 4 / 16 * 100.0
    for jobs_that_can_pay, names in ((0.9, []), (1.0, ["j1"]), (2.5, ["j1", "j2"]), (9.0, ["j0", "j1", "j2"])):
        terms = ExplorationTerms(jobs_that_can_pay * share)
        assert sorted(explored(draft, *telling, terms=terms)[0]) == names


def test_one_job_of_a_type_explores():
    jobs = [runs(name) for name in "abc"]
    assert len(explored(running(*jobs, cpus=(16,)), configuration(3, 1), configuration(1, 3))[0]) == 1


def test_the_limits_of_a_slot_hold():
    draft = running(runs("a"))
    assert explored(draft, configuration(3, 1), permitted=lambda trial: False) == ({}, {})
    few = SlotLimits(most_changes=1)
    assert explored(draft, configuration(3, 1), permitted=lambda trial: limit(trial, few, {}) is trial) == ({}, {})
    scaled = SlotLimits(least_slots=3), {"a": -1}
    assert explored(draft, configuration(3, 1), permitted=lambda trial: limit(trial, *scaled) is trial) == ({}, {})
    assert explored(draft, configuration(3, 1), permitted=lambda trial: limit(trial, SlotLimits(), {}) is trial)[0]


def test_one_that_fits_no_node_is_not_given():
    """There are two cpus free, but no node has them both."""
    both = {"cpu": 2}
    state, report = runs("a", workers=1, servers=1, worker=both, server=both)
    seen = snapshot([state], nodes({"cpu": 3}, {"cpu": 3}), (report,))
    draft = draft_of(seen, {"a": Grant(1, 1)})
    assert explored(draft, configuration(2, 1, now=((1, 1),))) == ({}, {})


_TELLING = st.builds(
    lambda model, servers, workers, gain: TellingConfiguration(
        model, servers, workers, tuple((s, w, 1.0) for s in range(1, 9) for w in range(1, 9)), 0.2, gain
    ),
    st.sampled_from(SPEEDS.models),
    st.integers(1, 8),
    st.integers(1, 8),
    st.floats(0.0, 20.0),
)


@st.composite
def running_clusters(draw):
    """Jobs that go on as they do on nodes where some room is left, of which some may be given nothing."""
    each = []
    for number in range(draw(st.integers(1, 5))):
        least, now = draw(st.tuples(st.integers(1, 2), st.integers(1, 2))), draw(st.tuples(*[st.integers(0, 2)] * 2))
        workers, servers = (one + more for one, more in zip(least, now, strict=True))
        bounds = {"min_workers": least[0], "min_servers": least[1]}
        bounds |= {"max_workers": draw(st.integers(workers, 8)), "max_servers": draw(st.integers(servers, 8))}
        model = draw(st.sampled_from(SPEEDS.models))
        each.append(runs(f"j{number}", workers, servers, model=model, **bounds))
    states, reports = zip(*each, strict=True)
    seen = snapshot(
        states, nodes(*({"cpu": count} for count in draw(st.lists(st.integers(4, 20), min_size=2)))), reports
    )
    return SlotDraft(seen, NodeRule.SPREAD, *kept(seen))


def kept(seen):
    room = FreeResources(seen)
    for index, state in enumerate(seen.jobs):
        room.give(index, state.workers, state.servers)
    return room.allocation(), room


TIMES = Counter()


@given(running_clusters(), st.lists(_TELLING, min_size=1, max_size=9), st.floats(0.0, 200.0))
def test_whatever_is_told_the_decision_can_be_done_and_nobody_else_is_touched(draft, telling, allowed):
    found, charges = explore(draft, telling, ExplorationTerms(allowed), lambda trial: True)
    TIMES[len(charges)] += 1
    assert sum(charges.values()) <= allowed
    answer_checks.check(draft.snapshot, found.allocation, found.room)
    if charges:
        assert all(grant.workers for grant in draft.grants)
    for state, before, after in zip(draft.snapshot.jobs, draft.grants, found.grants, strict=True):
        if state.job.id not in charges:
            assert after == before
            continue
        assert after.instead == (before.workers, before.servers) == (state.workers, state.servers)
        assert state.job.min_workers <= after.workers <= state.job.max_workers
        assert state.job.min_servers <= after.servers <= state.job.max_servers


def test_that_property_has_seen_jobs_explore():
    if not TIMES:
        test_whatever_is_told_the_decision_can_be_done_and_nobody_else_is_touched()
    assert TIMES[1]
    assert TIMES[2]
