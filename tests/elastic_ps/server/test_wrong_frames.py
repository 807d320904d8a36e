"""Frames that are well-formed and wrong, from peers that know the token: they cost nobody else anything."""

from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import wait
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId, Role
from elastic_ps.core.errors import PeerLost
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server import worker_frames
from elastic_ps.server.connections import EXCHANGE, FOLLOW
from elastic_ps.server.copying.follow_source import BACKLOG_BYTES
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, InitMeta, Meta, PullMeta, PushMeta, RecordMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import HYPER, TENSORS
from tests.elastic_ps.waiting import until

GROUPED = OptimizerSpec("sgd", {"momentum": 0.9}, {"i:5": {"group": 1.0}})
"""The last tensor is in a parameter group of its own."""


def greeted(job: Job, server: str, node: str, role: Role) -> Any:
    """A connection to a server, of a worker or of one that sends it updates, which the test reads."""
    member = job.members[server]
    connection = job.transport.connect(member.host, member.port, server)
    connection.detached().settimeout(TIMEOUT)
    connection.send(Frame(HelloMeta(node=node, role=role, lane=EXCHANGE if role is Role.WORKER else FOLLOW)))
    assert connection.receive().kind is Kind.ACCEPTED
    return connection


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        (GROUPED, {"hyper": {**HYPER.to_dict(), "groups": [{"lr": 0.1}]}}),
        (GROUPED, {}),
        (None, {"rows": [0]}),
    ],
    ids=["too few groups", "no numbers", "rows without a rule"],
)
def test_an_update_that_no_owner_makes_ends_the_stream_alone(
    jobs: Jobs, spec: OptimizerSpec | None, wrong: dict[str, Any]
) -> None:
    count = len(Job(TENSORS).model.blocks)
    job = jobs.begin(Job(TENSORS, spec, followers=[1] * count), servers=3, assignment=[0] * count)
    last = count - 1, 1
    job.workers["w0"].drain("s0", last[0], job.configuration.id)  # the follower has the values
    payload = [] if "rows" in wrong else [job.random_slab()[job.model.span(last)]]
    with closing(greeted(job, "s1", "s2", Role.SERVER)) as stream:
        stream.send(Frame(RecordMeta(runs=[list(last)], **wrong), job.configuration.id, 0), payload)
        while (frame := stream.receive()).kind is not Kind.REFUSED:
            pass
    assert f"blocks {last}" in frame.meta.detail
    assert job.servers["s1"].wait(0) is None


@pytest.mark.parametrize("meta", [PullMeta, PushMeta, InitMeta])
def test_blocks_that_are_named_again_and_again_are_given_no_memory(jobs: Jobs, meta: Callable[..., Meta]) -> None:
    """By the 16 MiB that a frame's meta may have, a million times as much as the model needs."""
    job = jobs.begin(Job(TENSORS))
    count = len(job.model.blocks)
    job.workers["w0"].send("s0", Frame(meta(runs=[[0, count], [1, 1]]), job.configuration.id))
    refused = job.workers["w0"].await_kind(Kind.REFUSED)
    assert f"{count + 1} blocks are named, but the model has {count}" in refused.meta.detail


def test_who_asks_for_more_than_it_reads_is_answered_as_it_reads(jobs: Jobs) -> None:
    """Each answer is a copy: without a bound a server filled its memory with them."""
    job = jobs.begin(Job((Tensor(0, "i:0", (1 << 18,), "float32"),), block_bytes=1 << 20))
    state = job.servers["s0"].state
    with closing(greeted(job, "s0", "w9", Role.WORKER)) as reader:
        for number in range(64):
            reader.send(Frame(PullMeta(runs=[[0, 1]]), job.configuration.id, number))
        until(lambda: state.held or state.outbox.backlog("w9") > 32 << 20)
        assert state.outbox.backlog("w9") <= BACKLOG_BYTES + (1 << 20)
        values = np.empty(1 << 20, dtype=np.uint8)
        while state.held or state.outbox.backlog("w9"):
            if wait([reader.detached()], 0.05):  # the last may be here before it counts as sent
                assert reader.receive().kind is Kind.VALUE
                reader.receive_into([values])
    job.check_step(0)


def test_rows_of_a_tensor_whose_blocks_cut_them_are_refused(jobs: Jobs) -> None:
    """They could be taken apart only at the other worker's push, which was refused in their place."""
    job = jobs.begin(Job((Tensor(0, "i:0", (2, 400), "float32"),)))
    count = len(job.model.blocks)
    rows = Frame(PushMeta(runs=[[0, count]], rows=[0], hyper=HYPER.to_dict()), job.configuration.id, 0, 4)
    job.workers["w0"].send("s0", rows)
    refused = job.workers["w0"].await_kind(Kind.REFUSED)
    assert "hold no whole ones" in refused.meta.detail


def test_what_waits_for_a_configuration_is_bounded(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a worker that pushes on and on, by a configuration that never comes, each time other blocks."""
    monkeypatch.setattr(worker_frames, "_HELD_BYTES", 0)
    job = jobs.begin(Job(TENSORS))
    count, beyond = len(job.model.blocks), ConfigId(1, 9)
    runs = [(first, last - first) for first in range(count) for last in range(first + 1, count + 1)]
    assert sum(job.model.span(run).stop - job.model.span(run).start for run in runs) > 16 * job.model.slab_bytes
    with closing(greeted(job, "s0", "w0", Role.WORKER)) as worker:
        for run in runs:
            size = job.model.span(run).stop - job.model.span(run).start
            try:
                worker.send(Frame(PushMeta(runs=[list(run)]), beyond, 0, 4), [np.zeros(size, dtype=np.uint8)])
            except PeerLost:
                break
        while (frame := worker.receive()).kind is not Kind.REFUSED:
            pass
    assert "w0 sent" in frame.meta.detail
    assert "bytes that have to wait here, more than the" in frame.meta.detail
    assert job.servers["s0"].wait(0) is None
