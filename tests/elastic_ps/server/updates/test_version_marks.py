"""Before a server writes over values that a worker may be reading in place, it says so."""

import numpy as np
import pytest

from elastic_ps.server.blocks.double_buffer import DoubleBuffer
from elastic_ps.server.blocks.memory_release import UnusedMemory
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import ADAM, SGD, TENSORS


def mark(job: Job, server: str) -> int:
    """The latest version that a server has begun, as a worker sees it."""
    return int(job.servers[server].state.store.values.mark.array.view(np.int64)[0])


def test_a_version_is_marked_before_its_values_are_written(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job, marks = jobs.begin(Job(TENSORS, ADAM)), []
    coming = DoubleBuffer.coming

    def observed(values: DoubleBuffer, segment: tuple[int, int]) -> object:
        marks.append(mark(job, "s0"))
        return coming(values, segment)

    monkeypatch.setattr(DoubleBuffer, "coming", observed)
    for version in range(3):
        assert mark(job, "s0") == version
        job.check_step(version)
        assert set(marks) == {version + 1}
        marks.clear()


def test_values_are_marked_as_gone_before_their_memory_is_given_back(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, marks = jobs.begin(Job(TENSORS, SGD)), []
    job.check_step(0)
    job.join_server("s1")
    new = job.next(["w0", "w1"], ["s1"], [0] * len(job.model.blocks))
    job.prepare(new, ["s0", "s1"])
    job.adopt(new, ["s0", "s1"])
    job.check_step(1)
    assert mark(job, "s0") == 1, "a worker that is slow still reads its version 1"
    add = UnusedMemory.add

    def observed(unused: UnusedMemory, *place: object) -> None:
        marks.append(mark(job, "s0"))
        add(unused, *place)

    monkeypatch.setattr(UnusedMemory, "add", observed)
    job.commit(["s0", "s1"])
    assert set(marks) == {3}, "nobody in the job reads version 1"
