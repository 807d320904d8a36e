"""Checkpoints written while training goes on, and restored into other numbers of servers."""

import json
from pathlib import Path

import numpy as np
import pytest

from elastic_ps.control import codec
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PullMeta, SnapshotMeta
from elastic_ps.transport.frames import Frame
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT, GatedTransport
from tests.elastic_ps.server.server_reference import ADAM, SGD, TENSORS


def begin_two(jobs: Jobs, spec: OptimizerSpec | None) -> Job:
    """Two servers that own every other block: there are no long runs to write."""
    job = Job(TENSORS, spec)
    return jobs.begin(job, 2, assignment=job.spread(2))


def save(job: Job, clock: int, url: Path) -> None:
    for server in job.servers:
        job.direct(server, save=pb.Save(clock=clock, url=f"file://{url}"))


def manifest(job: Job, clock: int, url: Path) -> Path:
    """What the coordinator does once all have answered."""
    blocks = {}
    for control in job.controls.values():
        saved = control.await_answer(pb.SAVED)
        assert saved.version == clock
        blocks.update(json.loads(saved.detail)["blocks"])
    assert sorted(map(int, blocks)) == list(range(len(job.model.blocks)))
    path = url / "manifest.json"
    path.write_text(json.dumps({"version": clock, "blocks": blocks}))
    return path


def restored(jobs: Jobs, path: Path, spec: OptimizerSpec | None, servers: int) -> Job:
    job = Job(TENSORS, spec)
    return jobs.begin(job, servers, assignment=job.spread(servers), restore=f"file://{path}")


@pytest.mark.parametrize("spec", [SGD, ADAM, None])
def test_saved_while_training_goes_on_and_restored_elsewhere(
    jobs: Jobs, tmp_path: Path, spec: OptimizerSpec | None
) -> None:
    job = begin_two(jobs, spec)
    for version in range(2):
        job.check_step(version)
    save(job, 4, tmp_path)
    for version in range(2, 4):
        job.check_step(version)
    at_clock = job.reference.slab.copy()
    later = []
    for version in range(4, 8):
        later.append(job.check_step(version))
    path = manifest(job, 4, tmp_path)
    again = restored(jobs, path, spec, 3)
    for server, blocks in again.configuration.blocks_of.items():
        frame = Frame(PullMeta(runs=[[block, 1] for block in blocks]), again.configuration.id, 4)
        again.workers["w0"].send(server, frame)
    again.workers["w0"].await_version(4)
    assert np.array_equal(again.workers["w0"].slab(4), at_clock)
    for version, slabs in enumerate(later, start=4):  # the same gradients lead to the same bits: state came along
        again.push_all(version, slabs)
        again.workers["w0"].await_version(version + 1)
    assert np.array_equal(again.workers["w0"].slab(8), job.reference.slab)


def test_what_blocks_have_taken_comes_with_them(jobs: Jobs, tmp_path: Path) -> None:
    """Else a batch of an async job that is given again would be taken twice by the blocks that had it."""
    job = begin_two(jobs, SGD)
    job.check_step(0)
    save(job, 2, tmp_path)
    job.check_step(1)
    path = manifest(job, 2, tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "applied": {"w7": [[0, 2, 5], [3, 1, 6]]}}))
    again = restored(jobs, path, SGD, 1)
    taken = again.servers["s0"].state.store.applied.image((0, 5))
    assert {origin: list(last) for origin, last in taken.items()} == {"w7": [5, 5, -1, 6, -1]}


def test_updates_do_not_wait_for_the_storage(jobs: Jobs, tmp_path: Path) -> None:
    """Copy on write: the image is that of the clock, though every block was updated before it was written."""
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    state = job.servers["s0"].state
    with state.changed:
        save(job, 2, tmp_path)
    job.check_step(1)
    at_clock = job.reference.slab.copy()
    job.check_step(2)
    job.check_step(3)
    path = manifest(job, 2, tmp_path)
    again = restored(jobs, path, SGD, 1)
    image = b"".join(
        piece.tobytes() for piece in again.servers["s0"].state.store.values.pieces((0, len(job.model.blocks)))
    )
    assert image == at_clock.tobytes()


def test_order_for_a_past_version_is_late(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    job.check_step(1)
    save(job, 1, tmp_path)
    assert job.controls["s0"].await_answer(pb.LATE).version == 2
    save(job, 3, tmp_path)
    job.check_step(2)
    assert job.controls["s0"].await_answer(pb.SAVED).version == 3


def test_saved_is_answered_once_the_ledger_of_its_updates_is_told(jobs: Jobs, tmp_path: Path) -> None:
    """Else nobody could prove them, were the server to die after it: found by a soak of random kills."""
    job = jobs.begin(Job(TENSORS, SGD))
    control = job.controls["s0"]
    control.reports = False
    job.check_step(0)
    control.asked.clear()
    save(job, 1, tmp_path)
    assert control.asked.wait(TIMEOUT)
    assert pb.SAVED not in [answer.answer for answer in control.answers]
    control.reports = True
    control.report_soon()
    assert control.await_answer(pb.SAVED).version == 1
    assert [entry.version for entry in control.ledger] == [0]


def test_the_same_order_again_gets_the_same_answer(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    save(job, 1, tmp_path)
    first = job.controls["s0"].await_answer(pb.SAVED)
    job.check_step(1)
    job.controls["s0"].answers.clear()
    save(job, 1, tmp_path)
    assert job.controls["s0"].await_answer(pb.SAVED, pb.LATE).detail == first.detail


def test_unwritable_folder_is_told(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    (tmp_path / "file").write_text("")
    save(job, 1, tmp_path / "file" / "folder")
    assert "cannot write" in json.loads(job.controls["s0"].await_answer(pb.SAVED).detail)["error"]
    job.check_step(1)


def test_blocks_on_their_way_are_saved_by_their_new_owner(jobs: Jobs, tmp_path: Path) -> None:
    job = Job(TENSORS, ADAM)
    slow = job.transports["s0"] = GatedTransport(TOKEN, Kind.HANDOVER)
    jobs.begin(job)
    job.check_step(0)
    new = job.prepare_two()
    job.order_adopt(new)
    assert slow.held.wait(TIMEOUT)
    save(job, 2, tmp_path)
    slow.gate.set()
    job.configuration = new
    job.check_step(1)
    path = manifest(job, 2, tmp_path)
    again = restored(jobs, path, ADAM, 3)
    again.reference = job.reference
    again.check_step(2)


def test_a_server_that_will_gain_blocks_does_not_wait_for_them(jobs: Jobs, tmp_path: Path) -> None:
    """The plan waits for the checkpoint, so the checkpoint must not wait for the plan."""
    job = begin_two(jobs, ADAM)
    new = job.next(["w0", "w1"], ["s1"], [0] * len(job.model.blocks))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    save(job, 1, tmp_path)
    job.check_step(0)
    path = manifest(job, 1, tmp_path)
    again = restored(jobs, path, ADAM, 1)
    again.reference = job.reference
    again.check_step(1)


def test_states_of_another_optimizer_are_refused_by_name(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    save(job, 1, tmp_path)
    path = manifest(job, 1, tmp_path)
    again = jobs.keep(Job(TENSORS, ADAM))
    control = again.add_server("s0")
    configuration = codec.configuration_to_pb(again.next(["w0"], ["s0"], again.spread(1)))
    again.direct("s0", prepare=pb.Prepare(configuration=configuration, restore=f"file://{path}"))
    assert "block 0 of key 0 was saved with other state" in control.await_answer(pb.UNREADABLE).detail


def test_optimizer_states_travel_to_a_worker_and_back(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, ADAM))
    job.check_step(0)
    worker, count = job.workers["w0"], len(job.model.blocks)
    worker.send("s0", Frame(PullMeta(runs=[[0, count]], states=True), job.configuration.id, 1))

    def snapshots() -> list:
        return [r for r in worker.received if r.frame.kind is Kind.SNAPSHOT]

    worker.wait(lambda: sum(r.frame.runs[0][1] for r in snapshots()) == count)
    saved = snapshots()
    other = begin_two(jobs, ADAM)
    other.check_step(0)
    for part in saved:
        first, blocks = part.frame.runs[0]
        values = other.model.blocks[first + blocks - 1].position + other.model.blocks[first + blocks - 1].extent
        states = part.data[values - other.model.blocks[first].position :]
        for block in range(first, first + blocks):
            owner = other.configuration.primary(block)
            if blocks == 1:
                meta = {"runs": [[block, 1]], "state": part.frame.meta.state, "counts": part.frame.meta.counts}
                other.workers["w0"].send(owner, Frame(SnapshotMeta(**meta), other.configuration.id, 1), [states])
    other.drain("w0")
    single = [part for part in saved if part.frame.runs[0][1] == 1]
    assert single
    for part in single:
        block = part.frame.runs[0][0]
        mine = other.servers[other.configuration.primary(block)].state.store.states((block, 1))
        values = job.model.blocks[block].extent
        assert b"".join(array.tobytes() for array in mine.values()) == part.data[values:].tobytes()


def test_restored_blocks_keep_their_values_when_the_chief_gives_first_ones(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    save(job, 1, tmp_path)
    path = manifest(job, 1, tmp_path)
    again = restored(jobs, path, SGD, 1)
    kept = again.servers["s0"].state.store
    assert len(kept.held(BlockStatus.PRIMARY)) == len(job.model.blocks)
    again.init()
    again.drain("w0")
    image = b"".join(piece.tobytes() for piece in kept.values.pieces((0, len(job.model.blocks))))
    assert image == job.reference.slab.tobytes()
