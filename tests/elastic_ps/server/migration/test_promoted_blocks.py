"""Promoted copies are the owner's bytes, values and optimizer states, whatever the owner was pushed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from elastic_ps.control import codec
from elastic_ps.core.compression import Compression
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration import test_async_moves as moves
from tests.elastic_ps.server.migration.followed_job import BLOCKS, OTHERS, OWNERS, FollowedJob, pair
from tests.elastic_ps.server.migration.test_follower_storms import push_rows
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_reference import ADAM, HYPER, SGD, TENSORS
from tests.elastic_ps.waiting import until

THEIRS = [block for block in range(BLOCKS) if OWNERS[block] == 0]

SPECS = [
    SGD,
    ADAM,
    OptimizerSpec("sgd"),
    OptimizerSpec("nag", {"momentum": 0.9}),
    OptimizerSpec("adamw"),
    OptimizerSpec("rmsprop", {"centered": True}),
    OptimizerSpec("adagrad"),
    OptimizerSpec("ftrl"),
    OptimizerSpec("test"),
    None,
]

TRANSPORTS = pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])


def promote(job: FollowedJob, blocks: Sequence[int] = THEIRS) -> None:
    """The owner of some blocks dies, and their follower has what it had."""
    bytes_of = {block: job.image("s0", [block]) for block in blocks}
    store = job.servers["s0"].state.store
    counts, versions = store.counts[list(blocks)].tolist(), store.versions[list(blocks)].tolist()
    count = len(job.model.blocks)
    job.kill("s0")
    job.bury("s0", [0] * count, [-1] * count, ["s1"])
    job.decide(list(blocks))
    heir = job.servers["s1"].state.store
    assert {block: job.image("s1", [block]) for block in blocks} == bytes_of
    assert heir.counts[list(blocks)].tolist() == counts
    assert heir.versions[list(blocks)].tolist() == versions


@TRANSPORTS
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name if spec else "none")
def test_optimizer_states(jobs: Jobs, spec: OptimizerSpec | None, transport: Transport) -> None:
    """Auxiliary keys are among the tensors, and float64."""
    job = pair(jobs, spec, transport)
    for version in range(3):
        job.check_step(version)
    promote(job)
    for version in range(3, 6):
        job.check_step(version)


def test_keys_that_are_not_pushed(jobs: Jobs) -> None:
    job = pair(jobs, ADAM)
    twin = jobs.begin(Job(TENSORS, ADAM, transport=TcpTransport(TOKEN)), servers=1)
    both = (job, twin)
    for version in range(6):
        absent = [block for block in range(BLOCKS) if job.model.blocks[block].tensor == version % 3]
        slabs = job.push_all(version, absent=absent)
        twin.push_all(version, slabs, absent=absent)
        for each in both:
            each.workers["w0"].await_version(version + 1)
        assert np.array_equal(job.workers["w0"].slab(version + 1), twin.workers["w0"].slab(version + 1))
        if version == 2:
            promote(job)


def test_a_model_of_float16_with_float32_masters(jobs: Jobs) -> None:
    tensors = (Tensor(0, "i:0", (500,), "float16"), Tensor(0, "i:1", (300,), "float16"))
    spec = OptimizerSpec("sgd", {"momentum": 0.9, "multi_precision": True})
    count = len(Job(tensors).model.blocks)
    owners = [block % 2 for block in range(count)]
    job = FollowedJob(tensors, spec, followers=[1 - owner for owner in owners], transport=TcpTransport(TOKEN))
    jobs.begin(job, servers=2, assignment=owners)
    for version in range(3):
        job.check_step(version)
    promote(job, [block for block in range(count) if owners[block] == 0])
    job.check_step(3)


def test_optimizer_that_is_set_when_blocks_have_values(jobs: Jobs) -> None:
    """Its first states are made of the values, so of the copies too: MXNet's scripts init keys, then set it."""
    tensors = (Tensor(0, "i:0", (500,), "float16"),)
    owners = [block % 2 for block in range(len(Job(tensors).model.blocks))]
    job = FollowedJob(tensors, None, followers=[1 - owner for owner in owners], transport=TcpTransport(TOKEN))
    jobs.begin(job, servers=2, assignment=owners)
    job.check_step(0)
    theirs = [block for block, owner in enumerate(owners) if owner == 0]
    until(lambda: job.image("s0", theirs) == job.image("s1", theirs))
    spec = OptimizerSpec("sgd", {"multi_precision": True})
    number = codec.config_id_to_pb(job.configuration.id)
    grown = {"tensors": map(codec.tensor_to_pb, tensors), "optimizers": [spec.to_json()], "configuration": number}
    for server in job.servers:
        message = pb.Extend(**grown, data=codec.data_to_pb(job.data), assignment=owners, followers=job.followers)
        job.direct(server, extend=message)
    assert job.image("s0", theirs) == job.image("s1", theirs)


# ---- compressed gradients --------------------------------------------------------------------------------------------


def push_encoded(job: FollowedJob, worker: str, version: int, slab: NDArray[np.uint8], how: Compression) -> None:
    """As `Job.push`; blocks of float32 are encoded, and `slab` becomes what that stands for."""
    configuration = job.configuration
    hyper = {"hyper": HYPER.to_dict()} if configuration.ranks[worker] == 0 else {}
    samples = job.data.global_batch // len(configuration.workers)
    for server, blocks in configuration.blocks_of.items():
        for run in ((block, 1) for block in blocks):
            part = slab[job.model.span(run)]
            meta, payload = {"runs": (run,), **hyper}, [part]
            if job.model.tensors[job.model.blocks[run[0]].tensor].dtype == "float32":
                part.view(np.float32)[...] = how.quantized(part.view(np.float32))
                payload = [how.encode(part.view(np.float32))]
                meta["encoded"] = {**how.tell(), "nbytes": [payload[0].nbytes]}
            job.workers[worker].send(server, Frame(PushMeta(**meta), configuration.id, version, samples), payload)


@TRANSPORTS
@pytest.mark.parametrize(
    "how", [Compression("2bit"), Compression("float16"), Compression("topk", ratio=0.1)], ids=lambda how: how.kind
)
def test_compressed_gradients(jobs: Jobs, how: Compression, transport: Transport) -> None:
    job = pair(jobs, SGD, transport)
    for version in range(6):
        slabs = [job.random_slab() for _ in range(2)]
        for name, slab in zip(("w0", "w1"), slabs, strict=True):
            push_encoded(job, name, version, slab, how)
        job.check_settled(version, slabs)
        if version == 2:
            promote(job)


# ---- row-sparse tables -----------------------------------------------------------------------------------------------


@TRANSPORTS
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_rows(jobs: Jobs, transport: Transport, name: str, lazy: bool) -> None:
    spec = OptimizerSpec(name, {"lazy_update": lazy})
    job = pair(jobs, spec, transport)
    twin = jobs.begin(Job(TENSORS, spec, transport=TcpTransport(TOKEN)), servers=1)
    rng = np.random.default_rng(3)
    for version in range(6):
        pushed = []
        for _ in range(2):
            numbers = np.sort(rng.choice(40, 5, replace=False)).astype(np.int64)
            pushed.append(Rows(numbers, rng.normal(size=(5, 10)).astype(np.float32)))
        for each in (job, twin):
            for worker, rows in zip(("w0", "w1"), pushed, strict=True):
                push_rows(each, worker, version, rows)
        for each in (job, twin):
            stores = [server.state.store for server in each.servers.values()]
            until(lambda stores=stores, v=version: all((store.versions == v + 1).all() for store in stores))
        if version == 2:
            promote(job)
    every = range(BLOCKS)
    owners = job.configuration.primary
    assert [job.image(owners(block), [block]) for block in every] == [twin.image("s0", [block]) for block in every]


# ---- async and ssp ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", ["async", "ssp"])
@pytest.mark.parametrize("spec", [SGD, ADAM, OptimizerSpec("adagrad")], ids=lambda spec: spec.name)
def test_batches_of_a_job_without_a_clock(jobs: Jobs, spec: OptimizerSpec, consistency: str) -> None:
    data = replace(moves.DATA, consistency=consistency, staleness=2 if consistency == "ssp" else 0)
    job = pair(jobs, spec, data=data)
    for step in range(4):
        moves.check_exchange(job, f"w{step % 2}", step // 2, step)
    promote(job)
    heir = job.servers["s1"].state.store
    for batch in (BatchId("w0", 0), BatchId("w0", 1), BatchId("w1", 0), BatchId("w1", 1)):
        assert heir.applied.has(batch, (0, BLOCKS)).all(), "each counts once, whoever pushes it again"
    moves.check_exchange(job, "w0", 2, 4)
    assert job.controls["s1"].await_answer(pb.ARRIVED, number=job.configuration.id)
    assert OTHERS != OWNERS
