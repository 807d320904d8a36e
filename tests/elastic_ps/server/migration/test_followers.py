"""Blocks have followers, which have every update before anybody has seen it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.gradient_norm import SKIPPED
from elastic_ps.core.model import runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.connections import Peer
from elastic_ps.server.service import ServerNode
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import FactorMeta, PullMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server import server_harness
from tests.elastic_ps.server.migration.followed_job import BLOCKS, OTHERS, OWNERS, FollowedJob, Hold, held_update, pair
from tests.elastic_ps.server.migration.test_broken_connections import reset
from tests.elastic_ps.server.server_harness import TOKEN, Jobs
from tests.elastic_ps.server.server_reference import ADAM, HYPER, SGD, TENSORS


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
@pytest.mark.parametrize("spec", [SGD, ADAM, None])
def test_followers_hold_the_owners_bytes(jobs: Jobs, spec: OptimizerSpec | None, transport: Transport) -> None:
    job = pair(jobs, spec, transport)
    for server in ("s0", "s1"):
        job.controls[server].await_answer(pb.FOLLOWED, number=job.configuration.id)
        job.controls[server].await_answer(pb.ARRIVED, number=job.configuration.id)
    for version in range(4):
        job.check_step(version)
        job.check_copies()
    job.commit(["s0", "s1"])
    job.check_step(4)
    job.check_copies()


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_followers_skip_the_step_that_owners_skip(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, transport: Transport
) -> None:
    monkeypatch.setattr(server_harness, "HYPER", replace(HYPER, skip_overflow=True))
    job = pair(jobs, ADAM, transport)
    slabs = [job.random_slab() for _ in job.workers]
    slabs[0].view(np.float32)[0] = np.inf
    job.push_all(0, slabs)
    for server in ("s0", "s1"):
        job.workers["w0"].send(server, Frame(FactorMeta(factor=SKIPPED), job.configuration.id, 0))
    for worker in job.workers.values():
        worker.await_version(1)
    job.check_copies()


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_one_record_brings_what_one_push_completes(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, transport: Transport
) -> None:
    records: list[Frame] = []
    arrived = ServerNode.arrived

    def count(node: ServerNode, peer: Peer, frame: Frame, data: Any) -> None:
        if frame.kind is Kind.RECORD:
            records.append(frame)
        arrived(node, peer, frame, data)

    monkeypatch.setattr(ServerNode, "arrived", count)
    owners = [block % 2 for block in range(BLOCKS)]
    job = FollowedJob(TENSORS, ADAM, followers=[1 - owner for owner in owners], transport=transport)
    jobs.begin(job, servers=2, assignment=owners)
    for version in range(3):
        job.check_step(version)
        job.check_copies()
    halves = [
        half
        for owned in (list(range(0, BLOCKS, 2)), list(range(1, BLOCKS, 2)))
        for half in (owned[: len(owned) // 2], owned[len(owned) // 2 :])
    ]
    for version in (1, 2):  # before, snapshots bring some
        brought = [[block for block, _ in frame.runs] for frame in records if frame.version == version]
        assert sorted(brought) == sorted(halves)


def test_nobody_is_told_what_a_follower_has_not_acknowledged(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pair(jobs)
    job.check_step(0)
    hold, slabs, told = held_update(job, monkeypatch)
    mine = job.configuration.blocks_of["s0"]
    job.push("w1", 1, slabs[1], servers=["s0"])  # once more, on a new connection as it were
    pull = Frame(PullMeta(runs=tuple(runs(mine))), job.configuration.id, 1)
    job.workers["w0"].send("s0", pull)
    job.controls["s0"].report_soon()
    assert job.servers["s0"].report().version == 1
    assert len(job.controls["s0"].ledger) == told
    assert not set(job.workers["w0"].values.get(2, {})) & set(mine)
    assert [one.peer for one in job.servers["s0"].seen().awaited] == ["s1"]
    assert not set(job.workers["w1"].values.get(2, {})) & set(mine)
    hold.gate.set()
    job.check_settled(1, slabs)
    job.controls["s0"].report_soon()
    assert {entry.version for entry in job.controls["s0"].ledger[told:]} == {1}
    assert job.servers["s0"].report().version == 2


def test_a_stream_that_breaks_begins_again(jobs: Jobs) -> None:
    job = pair(jobs, ADAM)
    job.check_step(0)
    for version in (1, 2, 3):
        reset(job)
        job.check_step(version)
        job.check_copies()


def test_blocks_that_are_followed_by_nobody_are_told_at_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FollowedJob(TENSORS, SGD, followers=[other if block % 2 else -1 for block, other in enumerate(OTHERS)])
    jobs.begin(job, servers=2, assignment=OWNERS)
    job.check_step(0)
    hold = Hold(monkeypatch)
    slabs = job.push_all(1)
    job.workers["w0"].await_version(2, range(0, BLOCKS, 2))
    assert not set(job.workers["w0"].values[2]) & set(range(1, BLOCKS, 2))
    hold.gate.set()
    job.check_settled(1, slabs)
