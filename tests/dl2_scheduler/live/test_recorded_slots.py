"""Whole slots of a live cluster, written and read again."""

import sqlite3
import zlib
from contextlib import contextmanager
from pathlib import Path

import pytest

from dl2_scheduler.cluster.errors import BadInput, StateNotWritten
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.commands.cluster.serving.driving import fitted_by
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.recorded_slots import of_decision, read_slot
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from tests.dl2_scheduler.played_cluster import document

ONE = {"slots": 1.0}
NODES = (Node("n0", {"slots": 8.0}), Node("n1", {"slots": 4.0, "gpu": 1.0}))


def recorded(slot, jobs=("a",)):
    states = tuple(JobState(Job(name, 0.5, "m", 10.0, 60.0, ONE, ONE), 1.25, slot, 1, 2) for name in jobs)
    return Snapshot(slot, 20.0, NODES, states, (SpeedReport("a", "m", 2, 1, 33.5),))


def write(history, slot):
    history.decided(100.0 + slot, "drf", recorded(slot), Allocation({"a": Grant(2, 1, "why")}))


def outcome_of(slot):
    done = JobOutcome("a", 1, 1, 0.5, None, "slow", since=12.5)
    return SlotOutcome(slot, (done,), (SpeedReport("a", "m", 1, 1, 7.0),), began=20.0 * slot, ended=20.0 * slot + 20)


def test_slots_come_back_as_they_were(tmp_path):
    history = History(tmp_path / HISTORY_FILE)
    write(history, 3)
    history.happened(outcome_of(3))
    write(history, 4)
    history.decided(105.0, "drf", recorded(5, ()), Allocation())  # nobody was there
    history.close()
    again = History.of_folder(tmp_path)
    third, fourth = again.slots()
    assert (third.at, third.policy, third.snapshot) == (103.0, "drf", recorded(3))
    assert (third.allocation, third.outcome) == (Allocation({"a": Grant(2, 1, "why")}), outcome_of(3))
    assert fourth.outcome is None
    assert [slot.snapshot.slot for slot in again.slots(after=3)] == [4]
    again.close()


def test_a_slot_that_was_written_before_its_times_were_kept():
    written = (
        b'{"slot":3,"jobs":[{"id":"a","workers":1,"servers":1,"epochs":0.5,"finished":null,"note":""}],"reports":[]}'
    )
    decision = of_decision(recorded(3), Allocation())
    found = read_slot((103.0, "drf", decision, zlib.compress(written)))
    assert found.outcome == SlotOutcome(3, (JobOutcome("a", 1, 1, 0.5, None),), ())


def test_a_slot_that_cannot_be_written_is_told_and_the_next_one_can_be(tmp_path):
    history = History(tmp_path / HISTORY_FILE)
    write(history, 3)
    words = r"cannot write .*sqlite: database or disk is full; mend that, and start"
    with full(history), pytest.raises(StateNotWritten, match=words):
        history.shadowed(3, "x" * 100_000, Allocation({"a": Grant(2, 1)}))
    write(history, 4)
    history.close()
    assert [slot.snapshot.slot for slot in History.of_folder(tmp_path).slots()] == [3, 4]


@contextmanager
def full(written):
    """Its disk, meanwhile."""
    pages = written._database.execute("PRAGMA page_count").fetchone()[0]
    written._database.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        written._database.execute("PRAGMA max_page_count = 1000000")


def test_old_slots_go_and_what_was_decided_in_them(tmp_path):
    history = History(tmp_path / HISTORY_FILE, most_slots=130)
    for slot in range(150):
        write(history, slot)
    assert [slot.snapshot.slot for slot in history.slots()] == list(range(20, 150))
    assert len(history.of("a", 0.0, 1000)) == 130
    history.close()


def test_a_policy_that_fits_speeds_begins_with_what_was_reported(tmp_path):
    history = History(tmp_path / HISTORY_FILE)
    for slot in range(5):
        write(history, slot)
    assert len(list(history.reports(3, 99))) == 3
    assert len(list(history.reports(99, 4))) == 4
    assert len(list(history.reports(99, 99))) == 5
    job = recorded(0).jobs[0].job
    found = fitted_by(history)("optimus").speeds.grid(job)
    assert found[2, 1] == pytest.approx(33.5, rel=0.05)
    assert make_live_policy("optimus").speeds.grid(job)[2, 1] < 10
    history.close()


def test_what_a_job_did_is_recorded_not_what_it_was_told(tmp_path, serve, clock, runtime):
    cluster, history = serve("1x8"), History(tmp_path / HISTORY_FILE)
    loop = SlotLoop(cluster, Policies(make_live_policy, "drf", tmp_path), NodeRule.SPREAD, history, now=clock.now)
    cluster.desk.submit(document("a"), Path())
    loop.slot()
    cluster.desk.submit(document("b"), Path())
    runtime.jobs["a"].refuses = "its script draws its own batches"
    loop.slot()
    first, second = history.slots()
    assert [(done.id, done.workers, done.servers, done.epochs) for done in first.outcome.jobs] == [("a", 4, 4, 8.0)]
    assert first.outcome.reports == second.snapshot.reports != ()
    granted, had = second.allocation.grants["a"], second.outcome.jobs[0]
    assert (granted.workers, granted.servers, had.workers, had.servers) == (2, 2, 4, 4)
    assert had.note == "its script draws its own batches"
    history.close()


def test_there_is_no_history_where_no_cluster_was_served(tmp_path):
    with pytest.raises(BadInput, match="no history in"):
        History.of_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_slot_that_cannot_be_read_is_left_out_and_told(tmp_path, caplog):
    history = History(tmp_path / HISTORY_FILE)
    for number in (3, 4):
        write(history, number)
    with sqlite3.connect(tmp_path / HISTORY_FILE) as database:
        database.execute("UPDATE slots SET decision = x'00' WHERE slot = 3")
    database.close()
    for _ in range(2):
        assert [slot.snapshot.slot for slot in history.slots()] == [4]
    assert caplog.text.count("slot 3 is left out, it cannot be read") == 1
    history.close()


def test_a_slot_with_a_number_that_no_float_holds_is_left_out(history, caplog):
    write(history, 3)
    (decision,) = history._read("SELECT decision FROM slots", ())[0]
    text = zlib.decompress(decision).decode().replace('"slots_run":', f'"slots_run":{"9" * 400}')
    history._write("UPDATE slots SET decision = ?", [(zlib.compress(text.encode()),)])
    assert list(history.slots()) == []
    assert "slots_run is a number of more than 300 digits" in caplog.text
