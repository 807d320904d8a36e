"""A worker saves its part at the clock, and tells so when the ledger has all that it holds."""

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import CopiedBlock
from elastic_ps.torch.allreduce.checkpoints.saving import GroupSaver
from protos import elastic_pb2 as pb
from tests.elastic_ps.waiting import until

NUMBER = ConfigId(1, 1)
WAIT = 60.0


class Blocks:
    """Two blocks; each of two workers saves one."""

    error = None

    def part(self, rank, size):
        return list(range(rank, 2, size))

    def copy(self, blocks):
        if self.error is not None:
            raise self.error
        return [CopiedBlock(block, 4, [("", np.zeros(64, np.uint8))]) for block in blocks]


class Session:
    node = "w1"

    def __init__(self):
        self.answers = []
        self.written = threading.Event()

    def acknowledge(self, answer, number, version, detail=""):
        self.answers.append((answer, number, version, detail))

    def report_soon(self):
        self.written.set()


@pytest.fixture
def worker():
    configuration = SimpleNamespace(workers=("w0", "w1"), ranks={"w0": 0, "w1": 1}, id=NUMBER)
    state = SimpleNamespace(
        changed=threading.Condition(),
        held=3,
        configuration=configuration,
        standing=SimpleNamespace(config_id=NUMBER),
        session=Session(),
    )
    saver = GroupSaver(state)
    saver.begin(Blocks())
    return state, saver


def reach(worker, version):
    worker[0].held = version
    worker[1].reached()


def test_it_is_told_once_the_ledger_has_all_of_it(worker, tmp_path):
    state, saver = worker
    saver.save(5, str(tmp_path / "c"))
    reach(worker, 4)
    reach(worker, 5)
    assert state.session.written.wait(WAIT)
    saver.stored(4)
    assert state.session.answers == []
    saver.stored(5)
    ((answer, number, version, detail),) = state.session.answers
    assert (answer, number, version) == (pb.SAVED, NUMBER, 5)
    told = json.loads(detail)
    assert list(told["blocks"]) == ["1"]
    assert told["blocks"]["1"]["version"] == 5
    assert (tmp_path / "c" / "w1.bin").stat().st_size == told["bytes"] == 64
    saver.save(5, str(tmp_path / "c"))  # the answer was lost
    assert state.session.answers[1:] == state.session.answers[:1]
    reach(worker, 6)
    saver.stored(6)
    assert len(state.session.answers) == 2


@pytest.mark.parametrize("clock", [2, 3])
def test_a_version_that_is_here_already_is_late(worker, tmp_path, clock):
    """At the clock's own version the next step may be under way here."""
    state, saver = worker
    saver.save(clock, str(tmp_path))
    assert state.session.answers == [(pb.LATE, NUMBER, 3 if clock == 2 else 4, "")]
    assert not list(tmp_path.iterdir())


def test_who_is_given_a_later_version_is_late(worker, tmp_path):
    state, saver = worker
    saver.save(5, str(tmp_path))
    reach(worker, 7)
    saver.save(5, str(tmp_path))  # the answer was lost
    assert state.session.answers == [(pb.LATE, NUMBER, 7, "")] * 2


def test_the_last_order_counts(worker, tmp_path):
    state, saver = worker
    saver.save(5, str(tmp_path / "a"))
    saver.save(6, str(tmp_path / "b"))
    saver.stored(9)
    reach(worker, 5)
    reach(worker, 6)
    assert state.session.written.wait(WAIT)
    assert [version for _, _, version, _ in state.session.answers] == [6]
    assert not (tmp_path / "a").exists()


def test_what_it_wrote_for_an_order_that_failed_it_takes_back(worker, tmp_path):
    """Though this order comes too late here: on a machine that has the folder for itself nobody else does."""
    state, saver = worker
    saver.save(5, str(tmp_path / "a"))
    reach(worker, 5)
    assert state.session.written.wait(WAIT)
    assert (tmp_path / "a" / "w1.bin").exists()
    saver.save(4, str(tmp_path / "b"), str(tmp_path / "a"))
    until(lambda: not (tmp_path / "a").exists())
    assert state.session.answers[-1][0] == pb.LATE


def test_what_cannot_be_copied_is_told_and_the_step_goes_on(worker, tmp_path):
    state, saver = worker
    saver._blocks.error = ConfigurationError("the optimizer's state has history")
    saver.save(5, str(tmp_path))
    saver.stored(5)
    reach(worker, 5)
    told = {"url": str(tmp_path), "error": "the optimizer's state has history"}
    assert json.loads(state.session.answers[0][3]) == told


def test_a_folder_that_cannot_be_written_is_told(worker, tmp_path):
    state, saver = worker
    (tmp_path / "file").touch()
    saver.save(5, str(tmp_path / "file" / "c"))
    saver.stored(5)
    reach(worker, 5)
    assert state.session.written.wait(WAIT)
    assert json.loads(state.session.answers[0][3])["error"].startswith("w1 cannot write to ")
