"""Blocks of an async job change their owner, and are saved, while everybody pushes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from coordinator.ctl.exactly_once_audit import audit
from elastic_ps.core.configuration import Configuration
from elastic_ps.core.data_order import DataSpec, place, share
from elastic_ps.core.model import runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT, GatedTransport
from tests.elastic_ps.server.server_reference import ADAM, HYPER, SGD, TENSORS

DATA = DataSpec(True, 48, 8, consistency="async")
EVERY = range(len(Job(TENSORS).model.blocks))


def push(
    job: Job,
    worker: str,
    version: int,
    step: int,
    slab: NDArray[np.uint8],
    batch: BatchId | None = None,
    configuration: Configuration | None = None,
    blocks: Sequence[int] = EVERY,
    absent: Sequence[int] = (),
) -> None:
    """A worker's exchange `version`, of the epoch's step `step`, to the blocks' owners; half of them in each frame."""
    configuration = configuration or job.configuration
    where, positions = place(job.data, step), share(job.data, step % job.data.steps_per_epoch, 0, 1)
    for server, owned in configuration.blocks_of.items():
        mine = [block for block in owned if block in blocks]
        for chunk in (mine[: len(mine) // 2], mine[len(mine) // 2 :]):
            meta = {
                "runs": [list(run) for run in runs(block for block in chunk if block not in absent)],
                "absent": [list(run) for run in runs(block for block in chunk if block in absent)],
                "slice": [where.epoch, where.step, 0, positions.start, positions.stop],
                "batch": list(batch or BatchId(worker, version)),
                "hyper": HYPER.to_dict(),
            }
            frame = Frame(PushMeta(**meta), configuration.id, version, len(positions))
            job.workers[worker].send(server, frame, [slab[job.model.span(run)].copy() for run in frame.runs])


def check_settled(job: Job, worker: str, version: int, slab: NDArray[np.uint8]) -> None:
    job.reference.update([slab], [job.data.global_batch])
    job.workers[worker].await_version(version + 1)
    assert np.array_equal(job.workers[worker].slab(version + 1), job.reference.slab)


def check_exchange(job: Job, worker: str, version: int, step: int) -> None:
    slab = job.random_slab()
    push(job, worker, version, step, slab)
    check_settled(job, worker, version, slab)


def exactly_once(job: Job, epochs: int = 1) -> bool:
    entries = [entry for server in job.servers.values() for entry in server.report().ledger]
    entries += [entry for control in job.controls.values() for entry in control.ledger]
    return audit(entries, job.data.samples, job.data.global_batch, epochs).exactly_once


@pytest.mark.parametrize("spec", [SGD, ADAM])
def test_a_follower_is_byte_equal_under_interleaved_pushes(jobs: Jobs, spec: OptimizerSpec) -> None:
    """Three workers push at once, in any order, and not always every key."""
    job = jobs.begin(Job(TENSORS, spec, DATA), workers=3)
    for number, worker in enumerate(job.workers):
        push(job, worker, 0, number, job.random_slab())
    new = job.prepare_two(synced=False)
    moving = list(new.blocks_of["s1"])
    for version in range(1, 9):
        for number, worker in enumerate(job.workers):
            absent = [moving[(version + number) % len(moving)]] if version % 2 else []
            push(job, worker, version, 0, job.random_slab(), absent=absent)
        for worker in job.workers.values():
            worker.await_version(version + 1)
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    job.adopt(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    stores = [job.servers[name].state.store for name in ("s0", "s1")]
    assert job.image("s1", moving) == job.image("s0", moving)
    for name in ("versions", "counts"):
        old, theirs = (getattr(store, name)[moving].tolist() for store in stores)
        assert old == theirs
        assert len(set(old)) > 1
    assert stores[1].applied.image((0, len(EVERY))).keys() == {"w0", "w1", "w2"}
    assert [s.applied.image((block, 1)) for s in stores for block in moving] == [
        {worker: [8] for worker in job.workers} for _ in stores for _ in moving
    ]


@pytest.mark.parametrize("mode", [pb.LIVE, pb.PAUSE])
def test_a_batch_cut_by_a_hand_over_enters_each_block_once(jobs: Jobs, mode: int) -> None:
    """The old owner took half of it; the worker sends it again to the new owners, who know."""
    job = jobs.begin(Job(TENSORS, ADAM, DATA))
    check_exchange(job, "w0", 0, 0)
    new = job.prepare_two(mode)
    check_exchange(job, "w1", 0, 1)
    slab, half = job.random_slab(), EVERY[: len(EVERY) // 2]
    push(job, "w0", 1, 2, slab, blocks=half)
    job.workers["w0"].await_version(2, half)
    job.order_adopt(new)
    push(job, "w0", 1, 2, slab)
    assert job.workers["w0"].await_kind(Kind.REFUSED).meta.reason == Reason.STALE
    push(job, "w0", 1, 2, slab, configuration=new)
    check_settled(job, "w0", 1, slab)
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    job.configuration = new
    job.commit(["s0", "s1"])
    for step in (3, 4, 5):
        check_exchange(job, "w1", step - 2, step)
    assert exactly_once(job)


def test_a_push_waits_for_the_hand_over(jobs: Jobs) -> None:
    job = Job(TENSORS, ADAM, DATA)
    slow = job.transports["s0"] = GatedTransport(TOKEN, Kind.HANDOVER)
    jobs.begin(job)
    check_exchange(job, "w0", 0, 0)
    new = job.prepare_two()
    slabs = [job.random_slab() for _ in range(2)]
    push(job, "w1", 0, 1, slabs[0])  # taken by the old owner; its answer is lost
    job.workers["w1"].await_version(1)
    job.order_adopt(new)
    assert slow.held.wait(TIMEOUT)
    mine, theirs = new.blocks_of["s0"], new.blocks_of["s1"]
    job.workers["w1"].values.clear()
    push(job, "w1", 0, 1, slabs[0], configuration=new)
    push(job, "w0", 1, 2, slabs[1], configuration=new)
    job.workers["w0"].await_version(2, mine)
    job.workers["w1"].await_version(1, mine)
    assert not set(job.workers["w0"].values[2]) & set(theirs)
    assert not set(job.workers["w1"].values[1]) & set(theirs)
    slow.gate.set()
    job.reference.update([slabs[0]], [8])
    check_settled(job, "w0", 1, slabs[1])
    job.workers["w1"].await_version(1)
    assert set(job.servers["s1"].state.store.versions[list(theirs)]) == {3}


def test_a_dead_worker_s_batch_is_done_by_another_at_another_owner(jobs: Jobs) -> None:
    """It died when half of the blocks had taken its push, and the plan that moves them ends after its death."""
    job = jobs.begin(Job(TENSORS, ADAM, DATA), workers=3)
    check_exchange(job, "w2", 0, 0)
    slab, half = job.random_slab(), EVERY[: len(EVERY) // 2]
    push(job, "w2", 1, 1, slab, blocks=half)
    job.workers["w2"].await_version(2, half)
    survivors = job.next(["w0", "w1"], ["s0"], job.spread(1))
    job.prepare(survivors, ["s0"], dead=["w2"])
    job.adopt(survivors, ["s0"])
    job.commit(["s0"])
    job.workers.pop("w2").close()
    new = job.prepare_two()
    job.adopt(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    push(job, "w1", 0, 1, slab, BatchId("w2", 1))
    check_settled(job, "w1", 0, slab)
    for step in (2, 3, 4, 5):
        check_exchange(job, "w0", step, step)
    assert exactly_once(job)


def test_a_lag_is_counted_in_steps_of_all_workers(jobs: Jobs) -> None:
    """A stream that is stuck falls back to pause after 20 rounds, not after 20 pushes."""
    job = Job(TENSORS, ADAM, DATA)
    stuck = job.transports["s0"] = GatedTransport(TOKEN, Kind.SNAPSHOT)
    jobs.begin(job)
    check_exchange(job, "w0", 0, 0)
    new = job.prepare_two(synced=False)
    assert stuck.held.wait(TIMEOUT)
    source = job.servers["s0"].state.sources["s1"]
    rounds = 0
    while not source.fell_back and rounds < 60:
        for worker in job.workers:
            check_exchange(job, worker, 1 + rounds, 0)
        rounds += 1
    assert 20 < rounds < 40
    stuck.gate.set()
    assert job.controls["s1"].await_answer(pb.SYNCED, number=new.id).detail == "pause"
    job.adopt(new, ["s0", "s1"])
    check_exchange(job, "w0", 1 + rounds, 0)


def test_saved_at_once_and_each_block_at_its_own_version(jobs: Jobs, tmp_path: Path) -> None:
    """Copy on write; whatever clock the order names. After the restore versions go on, and nothing counts as taken."""
    job = jobs.begin(Job(TENSORS, ADAM, DATA))
    block = job.model.blocks_of[1].start
    for step in range(2):
        check_exchange(job, "w0", step, step)
    push(job, "w1", 0, 2, job.random_slab(), absent=[block])
    job.workers["w1"].await_version(1)
    state = job.servers["s0"].state
    with state.changed:
        job.direct("s0", save=pb.Save(clock=1, url=f"file://{tmp_path}"))
        kept = job.image("s0", list(EVERY))
        versions, counts = state.store.versions.tolist(), state.store.counts.tolist()
    assert {versions[block], *versions} == {2, 3}
    push(job, "w1", 1, 3, job.random_slab())
    saved = job.controls["s0"].await_answer(pb.SAVED, pb.LATE)
    assert (saved.answer, saved.version) == (pb.SAVED, 1)
    blocks = json.loads(saved.detail)["blocks"]
    (tmp_path / "manifest.json").write_text(json.dumps({"version": 1, "blocks": blocks}))
    again = jobs.begin(Job(TENSORS, ADAM, DATA), workers=1, restore=f"file://{tmp_path}/manifest.json")
    store = again.servers["s0"].state.store
    assert again.image("s0", list(EVERY)) == kept
    assert (store.versions.tolist(), store.counts.tolist()) == (versions, counts)
    push(again, "w0", 0, 2, again.random_slab())
    again.workers["w0"].await_version(1)
    assert store.versions.tolist() == [version + 1 for version in versions]
