"""Frames that are well-formed and wrong, from peers that know the token: they cost nobody else anything."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, InitMeta, Meta, PullMeta, PushMeta, RecordMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import HYPER, TENSORS

GROUPED = OptimizerSpec("sgd", {"momentum": 0.9}, {"i:5": {"group": 1.0}})
"""The last tensor is in a parameter group of its own."""


def owner(job: Job, server: str, of: str) -> Any:
    """A connection to a server, as one by which another sends it updates."""
    member = job.members[server]
    connection = job.transport.connect(member.host, member.port, server)
    connection.detached().settimeout(TIMEOUT)
    connection.send(Frame(HelloMeta(node=of, role="server", lane="follow")))
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
    job = jobs.begin(Job(TENSORS, spec, followers=[1] * count), servers=2, assignment=[0] * count)
    last = count - 1, 1
    job.workers["w0"].drain("s0", last[0], job.configuration.id)  # the follower has the values
    payload = [] if "rows" in wrong else [job.random_slab()[job.model.span(last)]]
    with closing(owner(job, "s1", "s9")) as stream:
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


def test_rows_of_a_tensor_whose_blocks_cut_them_are_refused(jobs: Jobs) -> None:
    """They could be taken apart only at the other worker's push, which was refused in their place."""
    job = jobs.begin(Job((Tensor(0, "i:0", (2, 400), "float32"),)))
    count = len(job.model.blocks)
    rows = Frame(PushMeta(runs=[[0, count]], rows=[0], hyper=HYPER.to_dict()), job.configuration.id, 0, 4)
    job.workers["w0"].send("s0", rows)
    refused = job.workers["w0"].await_kind(Kind.REFUSED)
    assert "hold no whole ones" in refused.meta.detail
