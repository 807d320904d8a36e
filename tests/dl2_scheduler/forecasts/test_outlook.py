"""What would become of a simulated cluster's jobs otherwise."""

from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES, Node
from dl2_scheduler.forecasts import outlook as outlooks
from dl2_scheduler.forecasts.calibration import Calibration
from dl2_scheduler.forecasts.ensemble import play_futures
from dl2_scheduler.forecasts.outlook import (
    AS_IT_IS,
    IdleCluster,
    Outlook,
    Supposition,
    later_by,
    with_nodes,
    without_nodes,
)
from dl2_scheduler.forecasts.records import EventKind
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.policies.registry import make_live_policy
from tests.dl2_scheduler.learning.test_live_learning import SLOT, job, live

SLOTS = 6
NAMES = [str(job(number, 0.0).id) for number in range(10)]
NOW = 1e9 + (SLOTS - 1) * SLOT + 10.0
UNCORRECTED = {kind: Calibration() for kind in EventKind}
MORE = replace(job(0, 0.0), id="new", samples_per_epoch=UNKNOWN_SAMPLES)


@pytest.fixture
def history(tmp_path):
    """Six slots under DRF; 12 task slots, and jobs that take as much as they get."""
    with closing(History(tmp_path / HISTORY_FILE)) as found:
        loop, _, _ = live(found, tmp_path)
        for _ in range(SLOTS):
            loop.slot()
        yield found


def outlook(history, active=NAMES, now=NOW, submitted=0.0):
    return Outlook(history, UNCORRECTED, make_live_policy, dict.fromkeys(active, submitted), now)


def told(asked, supposed=AS_IT_IS):
    """Return what it forecasts, if so."""
    return asked.compared(supposed)[1]


def test_one_job_more_makes_others_end_later(history):
    asked = outlook(history)
    before, after = told(asked), told(asked, Supposition(job=MORE))
    assert asked.now == NOW - 10.0, "the slot that has been decided"
    assert after["new"].start.at >= NOW - 10.0 + SLOT - 1.0, "it begins with the next slot"
    assert set(after) == {*before, "new"}
    later = later_by(before, after)
    assert all(by > -1.0 for by in later.values())
    assert max(later.values()) > SLOT / 2


def test_it_costs_others_less_if_it_asks_for_less(history):
    asked, long = outlook(history), replace(MORE, epochs=80.0)
    before = told(asked)
    much, little = (
        later_by(before, told(asked, Supposition(job=replace(long, max_workers=most, max_servers=most))))
        for most in (4, 1)
    )
    assert sum(little.values()) < sum(much.values())


def test_what_is_supposed_to_be_as_it_is_changes_nothing(history):
    asked = outlook(history)
    assert told(asked, AS_IT_IS) == told(asked, Supposition(policy="drf")) == told(outlook(history))


def test_more_nodes_help_and_fewer_do_not(history):
    asked, before = outlook(history), told(outlook(history))
    more = later_by(before, told(asked, Supposition(nodes=partial(with_nodes, more=[Node("+", {"slots": 12.0})]))))
    assert sum(more.values()) < -SLOT / 2
    with pytest.raises(BadInput, match="no node would be left"):
        told(asked, Supposition(nodes=partial(without_nodes, fewer=[Node("-", {"slots": 12.0})])))


@pytest.mark.parametrize("members", [(16, 1), (1, 16)])
def test_both_sides_rest_on_the_same_futures_where_time_ran_out_in_one(history, monkeypatch, members):
    asked, left = outlook(history), list(members)
    monkeypatch.setattr(outlooks, "play_futures", lambda *of, **how: play_futures(*of, members=left.pop(0), **how))
    before, after = asked.compared(Supposition(policy="drf"))
    assert not left
    assert before == after
    left[:] = [1, 1, 16, 16]
    assert before == told(asked) != told(asked)


def test_where_no_job_is_left_one_more_is_forecast_all_the_same(history):
    before, after = outlook(history, active=(), now=NOW + 1000.0).compared(Supposition(job=MORE))
    assert (before, set(after)) == ({}, {"new"})


def test_jobs_that_have_ended_since_are_not_there(history):
    running = list(told(outlook(history)))
    asked = outlook(history, active=running[1:])
    assert set(told(asked)) == set(running[1:])


def test_a_job_that_was_submitted_since_is_another_than_the_one_of_its_name(history):
    asked = outlook(history)
    assert told(asked)
    assert told(outlook(history, submitted=NOW)) == {}
    assert told(outlook(history, submitted=NOW + 1.0)) == told(asked), "by another clock"


def test_a_cluster_that_has_stood_still_begins_now(history):
    asked = outlook(history, active=(), now=NOW + 1000.0)
    assert told(asked) == {}
    (found,) = told(asked, Supposition(job=MORE)).values()
    assert found.made == NOW + 1000.0
    assert found.start.at == pytest.approx(NOW + 1000.0, abs=SLOT / 2)


def test_a_cluster_that_has_stood_still_is_as_it_was_started_since(history):
    """It may have other nodes, slots and policies than the last slot with jobs had."""
    made, asked_how = [], []

    def make(name):
        made.append(name)
        return make_live_policy(name)

    def idle():
        asked_how.append(True)
        return IdleCluster("fifo", (Node("n", {"slots": 2.0}),), 5 * SLOT)

    asked = Outlook(history, UNCORRECTED, make, {}, NOW + 1000.0, idle)
    played = asked._played(Supposition(job=MORE), NodeRule.SPREAD)
    assert (made, asked_how) == (["fifo"], [True])
    assert (played.present.nodes, played.present.slot_seconds) == ((Node("n", {"slots": 2.0}),), 5 * SLOT)
    Outlook(history, UNCORRECTED, make, dict.fromkeys(NAMES, 0.0), NOW, idle)
    assert asked_how == [True], "where jobs go on their last slot tells"


def test_nothing_has_been_decided(tmp_path):
    with closing(History(tmp_path / "other.sqlite")) as empty, pytest.raises(BadInput, match="no slot with jobs"):
        outlook(empty)
