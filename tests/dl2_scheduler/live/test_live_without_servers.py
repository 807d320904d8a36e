"""Steps of a slot's decision about jobs without servers, and the world model that is read from a history with them."""

from contextlib import closing

import numpy as np
import pytest

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.slot_decision import answer
from dl2_scheduler.live.slot_draft import SlotDraft
from dl2_scheduler.live.slot_limits import SlotLimits, limit
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.replay.measured import fit_speeds
from dl2_scheduler.world_model.future import cluster_at, largest, speeds_of
from dl2_scheduler.world_model.observation_value import telling_configurations
from dl2_scheduler.world_model.observed import ObservedCluster
from dl2_scheduler.world_model.worlds import Worlds

TASK = {"slots": 1.0}
SLOT = 60.0


def job(name, servers=True, least=1, **fields):
    found = Job(name, 0.0, "m", 10.0, 5.0, TASK, TASK, 8, 8, least, **fields)
    return found if servers else found.without_servers()


def snapshot(*states, slots=8, reports=()):
    return Snapshot(3, SLOT, (Node("n", {"slots": float(slots)}),), states, reports)


class Decided:
    """A policy that gives what it is told."""

    def __init__(self, **grants):
        self._grants = grants

    def allocate(self, now, room):
        return Allocation({name: Grant(*counts) for name, counts in self._grants.items()})


def counts(draft):
    return {name: (grant.workers, grant.servers) for name, grant in draft.allocation.grants.items()}


def test_it_shrinks_to_its_minimum_before_another_is_suspended():
    ring, other = JobState(job("ring", servers=False), workers=6), JobState(job("other"), 0.0, 1, 1, 1)
    found = answer(Decided(ring=(8, 0)), snapshot(ring, other), NodeRule.SPREAD)
    assert counts(found) == {"ring": (6, 0), "other": (1, 1)}
    assert found.allocation.of("ring").reason.startswith("6+0 instead of 8+0, so that other is not suspended")


def test_it_is_suspended_as_others_are():
    ring, other = JobState(job("ring", servers=False, least=2), workers=4), JobState(job("other", least=6))
    found = answer(Decided(other=(7, 1)), snapshot(ring, other), NodeRule.SPREAD)
    assert counts(found) == {"ring": (0, 0), "other": (7, 1)}


@pytest.mark.parametrize("servers", [False, True])
def test_a_job_that_trains_and_cannot_be_saved_keeps_its_minimum_whatever_begins_beside_it(servers):
    """It could not go on from a checkpoint later."""
    least = (2, int(servers))
    runs = JobState(job("runs", servers, least=2), 0.0, 1, 4, 4 * servers, saves=False)
    other = JobState(job("other", least=6))
    found = answer(Decided(other=(7, 1)), snapshot(runs, other), NodeRule.SPREAD)
    assert counts(found) == {"runs": least, "other": (0, 0)}
    assert found.allocation.of("runs").reason == (
        "kept at its minimum instead of suspended: without checkpoint.url it could not go on later"
    )
    assert found.allocation.of("other").reason.startswith("0+0 instead of 7+1: runs is kept")
    waits = JobState(job("runs", servers, least=2), saves=False)
    assert counts(answer(Decided(other=(7, 1)), snapshot(waits, other), NodeRule.SPREAD))["runs"] == (0, 0)


def test_reasons_say_nothing_of_servers():
    states = JobState(job("all", servers=False)), JobState(job("some", servers=False))
    reasons = {
        name: grant.reason
        for name, grant in answer(
            Decided(all=(8, 0), some=(2, 0)), snapshot(*states, slots=10), NodeRule.SPREAD
        ).allocation.grants.items()
    }
    assert reasons == {"all": "all that it can use", "some": "no node has room for more of it"}


def test_limits_count_its_workers():
    now = snapshot(JobState(job("ring", servers=False), workers=1))
    room = FreeResources(now)
    assert room.give(0, 7, 0)
    draft = SlotDraft(now, NodeRule.SPREAD, Allocation({"ring": Grant(7, 0)}), room)
    assert counts(limit(draft, SlotLimits(most_changes=3), {})) == {"ring": (4, 0)}


# ---- what a history tells --------------------------------------------------------------------------------------------


def lived(history, slot, states, reports, told):
    grants = {state.job.id: Grant(max(1, state.workers), state.servers) for state in states}
    now = Snapshot(slot, SLOT, (Node("n", {"slots": 16.0}),), tuple(states), tuple(reports))
    history.decided(slot * SLOT, "drf", now, Allocation(grants))
    done = [JobOutcome(each.job.id, each.workers, each.servers, 1.0, None) for each in states]
    history.happened(SlotOutcome(slot, done, tuple(told)))


def observed(tmp_path):
    """Two jobs of one type, with servers and without, each of which has reported."""
    reports = [SpeedReport("ring", "m", 0, 2, 18.0), SpeedReport("other", "m", 1, 1, 8.0)]
    states = [JobState(job("ring", servers=False), 1.0, 1, 2, 0), JobState(job("other"), 1.0, 1, 1, 1)]
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        lived(history, 0, states, reports, reports)
        lived(history, 1, states, reports, reports)
        found = ObservedCluster(history)
        found.catch_up()
        return found, list(history.slots())


def test_both_kinds_of_a_type_are_told_apart(tmp_path):
    known, slots = observed(tmp_path)
    kinds = largest(state.job for state in known.present.jobs)
    assert [(each.has_servers, each.max_servers, each.max_workers) for each in kinds] == [(True, 8, 8), (False, 0, 8)]
    speeds = speeds_of([state.job for state in known.present.jobs], known.fitted)
    assert np.isclose(speeds.of("m", 0, 2), 18.0, rtol=0.1)
    assert np.isclose(speeds.of("m", 1, 1), 8.0, rtol=0.1)
    fitted = fit_speeds(slots)
    assert [(each.model, each.configurations) for each in fitted.types] == [("m", 1), ("m", 1)]
    assert {row.servers for row in fitted.rows} == set(range(9))
    measured = [(row.servers, row.workers) for row in fitted.rows if row.observations]
    assert measured == [(1, 1), (0, 2)]


def test_worlds_and_futures_have_both(tmp_path):
    known, _ = observed(tmp_path)
    worlds = Worlds(known, 3, np.random.default_rng(0))
    for speeds in (*worlds.speeds, worlds.hoped, worlds.expected, *worlds.hopeful.speeds):
        assert np.isfinite(speeds.grid("m")).all()
        assert (speeds.grid("m")[:, 1:] > 0).all()
    cluster = cluster_at(known.present, worlds.expected, known.cost)
    cluster.apply(Drf().allocate(cluster.snapshot(), FreeResources(cluster.snapshot())))
    assert all(done.epochs > 0 for done in cluster.finish_slot().jobs)


def test_what_would_be_worth_knowing_is_of_either_kind(tmp_path):
    known, slots = observed(tmp_path)
    given = slots[-1].allocation
    found = telling_configurations(known.present, given, known.fitted, NodeRule.SPREAD, np.random.default_rng(0))
    for each in found:
        assert each.workers >= 1
        own = {(servers, workers) for servers, workers, _ in each.relative_speed}
        assert all((servers == 0) == (each.servers == 0) for servers, _ in own)
