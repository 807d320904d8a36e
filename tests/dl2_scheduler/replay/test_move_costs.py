"""What a move costs, as the slots of a cluster's own history tell it, while it grows."""

from contextlib import closing
from dataclasses import replace

import pytest

from dl2_scheduler.live.history import History
from dl2_scheduler.replay.move_costs import MoveCosts
from dl2_scheduler.sim.lanes import MEASURED
from tests.dl2_scheduler.replay.test_costs import ONE, TWO, Life


def test_a_move_costs_what_joins_took_and_only_jobs_that_were_scaled_may_move(tmp_path):
    with closing(History(tmp_path / "decisions.sqlite")) as history:
        costs = MoveCosts(history, 0)
        assert costs.cost() is None
        for slot in Life([ONE, ONE, ONE, TWO], join=7.0).slots():
            before = "a" in costs.scaled_jobs(), costs.cost() is None
            history.decided(slot.at, slot.policy, slot.snapshot, slot.allocation)
            history.happened(slot.outcome)
            if slot.snapshot.slot <= 3:
                assert before == (False, True)
        assert costs.scaled_jobs() == {"a"}
        found = costs.cost()
        assert found.away == pytest.approx(7.0)
        assert found.stopped == 2 * MEASURED.change
        assert found.words == " (a task joins in 7 s here, the mean of 1)"
        assert MoveCosts(history, slot.snapshot.slot + 1).cost() == found  # after a restart


def test_a_slot_that_was_cut_short_keeps_nobody_from_those_after_it(tmp_path):
    with closing(History(tmp_path / "decisions.sqlite")) as history:
        costs = MoveCosts(history, 0)
        for slot in Life([ONE, ONE, ONE, TWO], join=7.0).slots():
            history.decided(slot.at, slot.policy, slot.snapshot, slot.allocation)
            if slot.snapshot.slot != 1:
                history.happened(slot.outcome)
            costs.scaled_jobs()
        assert costs.cost() is not None


def test_another_job_of_a_name_has_not_been_scaled(tmp_path):
    with closing(History(tmp_path / "decisions.sqlite")) as history:
        slots = list(Life([ONE, ONE, ONE, TWO], join=7.0).slots())
        for slot in slots:
            history.decided(slot.at, slot.policy, slot.snapshot, slot.allocation)
            history.happened(slot.outcome)
        last = slots[-1]
        costs = MoveCosts(history, last.snapshot.slot + 1)
        assert costs.scaled_jobs() == {"a"}
        jobs = tuple(replace(state, job=replace(state.job, arrival=500.0)) for state in last.snapshot.jobs)
        again = replace(last.snapshot, slot=last.snapshot.slot + 1, jobs=jobs)
        history.decided(last.at, last.policy, again, last.allocation)
        assert costs.scaled_jobs() == set()
