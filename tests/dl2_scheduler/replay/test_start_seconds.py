"""How long jobs take to start, as the live loop asks for it: whatever its history has, the loop goes on."""

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.replay.start_seconds import StartSeconds
from dl2_scheduler.sim.lanes import MEASURED
from tests.dl2_scheduler.recorded_starts import present, started


def test_they_are_what_starts_took_here(history):
    seconds = StartSeconds(history)
    assert seconds() == MEASURED.start
    started(history, 0, 30.0)
    assert seconds() == 30.0


def test_only_the_last_slots_are_read(history):
    started(history, 0, 30.0)
    for slot in range(1, 202):
        started(history, slot, None)
    assert StartSeconds(history)() == MEASURED.start


def test_a_slot_that_tells_of_no_jobs_is_nothing(history):
    present(history, 0)
    history.happened(SlotOutcome(0, (), (), 0.0, 60.0))
    assert StartSeconds(history)() == MEASURED.start


def test_what_cannot_be_read_leaves_them_as_they_were(history, monkeypatch, caplog):
    started(history, 0, 30.0)
    seconds = StartSeconds(history)
    assert seconds() == 30.0

    def damaged(after=-1):
        raise BadInput("the file is damaged")

    monkeypatch.setattr(history, "slots", damaged)
    assert seconds() == 30.0
    assert "the file is damaged" in caplog.text
