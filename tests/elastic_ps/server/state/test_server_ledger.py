"""What a server tells of its updates, until the coordinator has it."""

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.data_order import Slice
from elastic_ps.server.state import unreported_entries
from elastic_ps.server.state.gathering import Share
from elastic_ps.server.state.unreported_entries import ServerLedger


def test_ledger_joins_the_chunks_of_a_step_until_it_is_reported() -> None:
    ledger = ServerLedger("s0")
    shares = [("w0", Share(2, Slice(0, 1, 0, 8, 10))), ("w1", Share(0, Slice(0, 1, 0, 10, 10)))]
    number = ConfigId(1, 2)
    ledger.append(number, 1, [(0, 2)], shares)
    ledger.append(number, 1, [(5, 1)], shares)
    ledger.append(number, 1, [(2, 2)], shares)
    first, (entry,) = ledger.report()
    assert first == 0
    assert list(entry.runs) == [0, 4, 5, 1]
    assert [(part.worker, part.low, part.high) for part in entry.slices] == [("w0", 8, 10)]
    ledger.append(number, 1, [(4, 1)], shares)  # what has been reported stays as it is
    assert [list(one.runs) for one in ledger.report()[1]] == [[0, 4, 5, 1], [4, 1]]
    ledger.kept(1)
    assert ledger.report()[0] == 1
    ledger.kept(1)
    assert ledger.waiting == 1


def test_lost_reports_are_sent_again() -> None:
    ledger = ServerLedger("s0")
    for version in range(3):
        ledger.append(ConfigId(1, 1), version, [(0, 1)], [])
    assert [entry.version for entry in ledger.report()[1]] == [0, 1, 2]
    assert [entry.version for entry in ledger.report()[1]] == [0, 1, 2]
    ledger.kept(2)
    assert [entry.version for entry in ledger.report()[1]] == [2]


def test_a_report_has_a_bound_of_bytes_and_brings_one_entry_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator has been away, and blocks are in many runs: more than a message may have ended the server."""
    monkeypatch.setattr(unreported_entries, "_REPORT_BYTES", 1000)
    ledger, sizes = ServerLedger("s0"), [100, 100, 700, 100, 1]
    for version, runs in enumerate(sizes):
        ledger.append(ConfigId(1, 1), version, [(2 * block, 1) for block in range(runs)], [])
    told = []
    while ledger.waiting:
        first, entries = ledger.report()
        told.append(len(entries))
        assert len(entries) == 1 or sum(entry.ByteSize() for entry in entries) <= 1000
        ledger.kept(first + len(entries))
    assert told == [2, 1, 2]
    assert ledger.report()[1] == []


def test_an_entry_that_is_withheld_is_not_reported_for_being_the_first() -> None:
    ledger = ServerLedger("s0")
    ledger.withhold(ledger.append(ConfigId(1, 1), 0, [(0, 1)], []), 0, [(0, 1)], 1)
    assert ledger.report()[1] == []


def test_an_entry_waits_for_followers_of_blocks_that_the_model_had_not_when_it_was_begun() -> None:
    ledger, number = ServerLedger("s0"), ConfigId(1, 1)
    ledger.withhold(ledger.append(number, 0, [(0, 1)], []), 0, [(0, 1)], 1)
    ledger.withhold(ledger.append(number, 0, [(2, 1)], []), 0, [(2, 1)], 3)
    assert not ledger.tell(np.array([1, 0, 0]))
    assert ledger.report()[1] == []
    assert ledger.tell(np.array([1, 0, 1]))
    assert [list(entry.runs) for entry in ledger.report()[1]] == [[0, 1, 2, 1]]


def test_nobody_waits_for_followers_of_blocks_that_have_come_since() -> None:
    ledger = ServerLedger("s0")
    ledger.withhold(ledger.append(ConfigId(1, 1), 0, [(0, 1)], []), 0, [(0, 1)], 1)
    ledger.wait_no_more(np.array([0, 2]))
    assert ledger.tell(np.array([0, 0, 0]))
