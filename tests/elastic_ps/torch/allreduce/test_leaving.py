"""A worker that has finished does not take the job's last updates along untold."""

import threading
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.errors import JobEnded  # noqa: E402
from elastic_ps.torch.allreduce import group_state  # noqa: E402
from elastic_ps.torch.allreduce import node as nodes  # noqa: E402
from elastic_ps.torch.allreduce.job import AllReduceJob  # noqa: E402
from elastic_ps.torch.allreduce.node import GroupNode  # noqa: E402
from protos import elastic_pb2 as pb  # noqa: E402

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def node(monkeypatch):
    """A worker that has finished, with an update that no coordinator has taken yet; nobody hears its first report."""
    monkeypatch.setattr(nodes, "_REPORT_SECONDS", 0.0)
    made = GroupNode(Mock(node="w0"), Mock())
    made.ledger.begin("workers.1", [pb.LedgerEntry(version=99)])
    made.ledger.settle(100)
    return made


def test_a_worker_that_has_finished_waits_for_a_coordinator_that_is_away(node, caplog):
    ended = threading.Thread(target=node.close, args=(True,), daemon=True)
    warned = threading.Event()
    caplog.handler.addFilter(lambda record: warned.set() or True)
    ended.start()
    assert warned.wait(20)
    assert node.ended is None
    node.reported(pb.ReportReply(ledger_kept=100), pb.ReportRequest(finished=True))
    ended.join(20)
    assert not ended.is_alive()
    assert [record.message for record in caplog.records] == [
        "no coordinator takes the last 1 updates for the ledger: waiting 60 s"
    ]


def test_it_does_not_wait_for_ever_and_says_what_may_be_lost(node, monkeypatch, caplog):
    monkeypatch.setattr(nodes, "_LEDGER_SECONDS", 0.0)
    node.close(True)
    assert "the ledger may lack the last 1 updates" in caplog.text


def test_it_waits_for_nobody_where_all_is_told(node, caplog):
    node.ledger.kept(100)
    node.close(True)
    assert caplog.text == ""


def test_a_last_barrier_that_no_coordinator_answers_is_not_waited_for_without_end(monkeypatch):
    """Its worker had finished, and kept its machine for ever."""
    asked = threading.Event()
    session = Mock(node="w0", in_touch_seconds=0.0, lease_seconds=10.0)
    session.barrier.side_effect = lambda *_: asked.wait()
    job = AllReduceJob(GroupNode(session, Mock()))
    job._exchange = Mock()
    monkeypatch.setattr(group_state, "AWAY_SECONDS", 0.0)
    with pytest.raises(JobEnded, match="no coordinator says whether the others have the last step"):
        job._await_others()
    asked.set()
