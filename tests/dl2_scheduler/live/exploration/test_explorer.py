"""Exploring slot after slot: what it costs is counted over restarts, and whatever fails, the slot goes on."""

from dataclasses import replace

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.live.exploration.explorer import EXPLORATION_FILE, Explorer
from dl2_scheduler.live.exploration.telling import Telling
from tests.dl2_scheduler.live.exploration.test_step import configuration, running, runs

SHARE = 4 / 8 * 100.0  # what a job of 2+2 on 8 cpus costs in a slot of 100 s


CLOCK = {"now": 1e9}


def at(slot, draft=None):
    """A slot, which begins now."""
    draft, CLOCK["now"] = draft or running(runs("a")), 1e9 + 100.0 * slot
    return replace(draft, snapshot=replace(draft.snapshot, slot=slot))


def telling(slot=0, scaling_seconds=0.0):
    return Telling(slot, (configuration(3, 1),), scaling_seconds)


def explorer(folder, found=telling, part=0.5):
    """In a cluster that has lived a slot, slot 0."""
    new = not (folder / EXPLORATION_FILE).exists()
    find = found if callable(found) else lambda: found
    exploring = Explorer(part, folder, find, now=lambda: CLOCK["now"])
    if new:
        exploring.budget = exploring.budget.at_slot(0, 100.0, part, 1e9)
    return exploring


def lives(exploring, draft):
    found = exploring.explored(draft, lambda trial: True)
    exploring.done(draft.snapshot, found.allocation)
    return found.allocation.of("a").instead is not None


def test_it_explores_as_often_as_the_budget_lets_it_and_a_restart_changes_nothing(tmp_path):
    did = []
    for slot in range(1, 41):
        exploring = explorer(tmp_path, telling(slot), part=0.1)  # a new one each slot
        did.append(lives(exploring, at(slot)))
    assert sum(did) == 8  # each costs half the cluster, a tenth comes in
    assert (exploring.budget.jobs, exploring.budget.spent) == (8, pytest.approx(8 * SHARE))
    assert exploring.summary == "at most 10% of the cluster: 8 times, 10.00% so far; the last in slot 40, a with 3+1"


def test_a_type_is_tried_again_when_somebody_has_looked_since(tmp_path):
    found = telling(1)
    exploring = explorer(tmp_path, lambda: found)
    assert [lives(exploring, at(slot)) for slot in (2, 3, 4)] == [True, False, False]
    found = telling(2)  # what the job has reported at the end of slot 2 is not in it
    assert not lives(exploring, at(4))
    found = telling(3)
    assert lives(exploring, at(4))


@pytest.mark.parametrize(("found", "slot"), [(telling(0), 4), (telling(3, scaling_seconds=80.0), 4), (Telling(), 4)])
def test_what_is_old_or_what_would_not_be_measured_is_not_tried(tmp_path, found, slot):
    assert not lives(explorer(tmp_path, found), at(slot))


def test_what_finds_no_place_costs_nothing(tmp_path):
    exploring, draft = explorer(tmp_path), at(1)
    assert exploring.explored(draft, lambda trial: True).allocation.of("a").instead
    assert exploring.budget.spent == SHARE
    exploring.done(draft.snapshot, Allocation({"a": Grant(2, 2, "held at 2+2")}))
    assert (exploring.budget.spent, exploring.budget.jobs) == (0.0, 0)
    assert explorer(tmp_path).budget == exploring.budget
    assert lives(exploring, at(2))


def test_a_slot_goes_on_whatever_fails(tmp_path, caplog):
    def fails():
        raise RuntimeError("no")

    draft = at(1)
    assert explorer(tmp_path, fails).explored(draft, lambda trial: True) is draft
    (tmp_path / EXPLORATION_FILE).with_suffix(".partial").mkdir()  # so that nothing can be written
    exploring = explorer(tmp_path)
    assert not lives(exploring, draft)
    assert exploring.budget.spent == 0.0
    assert caplog.text.count("slot 1: nothing is explored") == 2


@pytest.mark.parametrize("text", ["", "[]", '{"spent": -1}', '{"spent": NaN}', '{"saved": 1e300}', '{"jobs": 1.5}'])
def test_damaged_counters_are_refused(tmp_path, text):
    (tmp_path / EXPLORATION_FILE).write_text(text)
    with pytest.raises(BadInput, match=r"cannot use .*exploration.json: .*bring a copy of it back, or delete it"):
        explorer(tmp_path)


def test_a_slot_whose_policy_has_failed_gives_nothing_back(tmp_path):
    """The fallback decided, and nothing was explored: what had been spent before was taken back, slot after slot."""
    exploring = explorer(tmp_path, telling(1))
    assert lives(exploring, at(2))
    before = exploring.budget
    for slot in (3, 4, 5):
        exploring.done(at(slot).snapshot, at(slot).allocation)
    assert exploring.budget == before
    assert before.spent > 0


def test_slots_that_end_early_bring_in_the_time_that_they_took(tmp_path):
    """They are of 1,200 s, and one is over as its job ends, after 60 s; a restart between them changes nothing."""
    draft = at(1, replace(running(runs("a")), snapshot=replace(running(runs("a")).snapshot, slot_seconds=1200.0)))
    for slot in (1, 2):
        exploring = Explorer(0.02, tmp_path, Telling, now=lambda: CLOCK["now"])
        exploring.explored(replace(draft, snapshot=replace(draft.snapshot, slot=slot)), lambda trial: True)
        CLOCK["now"] += 60.0
    assert exploring.budget.lived == 60.0
    empty = replace(draft, snapshot=replace(draft.snapshot, slot=3, jobs=()))
    for _ in range(2):
        exploring.explored(empty, lambda trial: True)
        CLOCK["now"] += 500.0
    assert exploring.budget.lived == 120.0


def test_counters_of_an_earlier_release_are_gone_on_with(tmp_path):
    (tmp_path / EXPLORATION_FILE).write_text('{"lived": 900.0, "spent": 3.0, "saved": 9.0, "jobs": 2, "slot": 8}')
    exploring = explorer(tmp_path)
    exploring.explored(at(9), lambda trial: False)
    assert (exploring.budget.lived, exploring.budget.saved) == (900.0, 9.0)
    exploring.explored(at(10), lambda trial: False)
    assert exploring.budget.lived == 1000.0
