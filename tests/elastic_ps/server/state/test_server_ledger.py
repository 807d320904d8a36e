"""What a server tells of its updates, until the coordinator has it."""

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.data_order import Slice
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
