"""A fault of a job whose blocks all have followers may not send it back to a checkpoint."""

import pytest

from tests.chaos.cells import Cell
from tests.chaos.draw import Fault, draw
from tests.chaos.inject import Injection
from tests.chaos.one import judged
from tests.chaos.result import blank
from tests.world.faults.cells import COORDINATOR, DEATH, KILL, LOSE, REST, SERVER

BEFORE = {4: "restore: server s0 died"}


class Restored:
    """A job that has gone back to its checkpoint once more since."""

    def __init__(self, restores):
        self.all = restores

    def restores(self):
        return self.all


def outcome(cell, protected=True, restores=None):
    (job, *_) = draw(1, 3, False)
    fault = Fault(0, cell)
    injection = Injection(None, fault, protected=protected)
    found = Restored({**BEFORE, 7: "restore: server s1 died"} if restores is None else restores)
    result = judged(blank(job, fault), found, fault, injection, BEFORE)
    return result.outcome, result.protected, result.restored


def test_a_restore_of_a_protected_job_is_a_failure():
    expected = ("restored", True, "restore: server s1 died")
    assert outcome(Cell(SERVER, REST, KILL)) == expected
    assert outcome(Cell(SERVER, REST, KILL), restores=BEFORE) == ("recovered", True, "")


def test_what_is_not_protected_may_be_restored():
    assert outcome(Cell(SERVER, REST, KILL), protected=False)[:2] == ("recovered", False)


def test_a_fault_on_top_of_a_death_is_not_single():
    assert outcome(Cell(SERVER, DEATH, KILL))[:2] == ("recovered", False)


@pytest.mark.parametrize(("mode", "phase", "expected"), [("sync", REST, "restored"), ("async", REST, "recovered")])
def test_a_lost_journal_costs_a_restore_where_batches_are_drawn(mode, phase, expected, monkeypatch):
    monkeypatch.setattr("tests.chaos.draw.MODES", (mode,))
    assert outcome(Cell(COORDINATOR, phase, LOSE))[0] == expected
