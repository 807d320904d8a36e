"""One exchange after the other: aggregation, normalisation, judgement of frames."""

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import InitMeta, PullMeta, PushMeta, SnapshotMeta, SubscribeMeta
from elastic_ps.transport.frames import Frame
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import ADAM, HYPER, SGD, TENSORS, tensor_view
from tests.elastic_ps.waiting import until


@pytest.mark.parametrize("spec", [SGD, ADAM, None])
def test_steps_equal_training_on_one_machine(jobs: Jobs, spec: OptimizerSpec | None) -> None:
    job = jobs.begin(Job(TENSORS, spec), workers=3, servers=2)
    for version in range(10):  # the data's 8 steps of an epoch, and on
        job.check_step(version)


def test_last_step_of_an_epoch_is_scaled_to_the_global_batch(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, None, DataSpec(True, 13, 8, "short")), servers=2)
    job.check_step(0)
    job.check_step(1)  # 5 samples; the reference multiplies by 8 / 5


def test_mean_loss_weights_by_samples(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD, DataSpec(True, 64, 7, "short", "mean")), servers=2)
    for version in range(3):
        job.check_step(version)


def test_ranks_without_samples_agree_with_the_others(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD, DataSpec(True, 10, 8, "short")), workers=3, servers=2)
    job.check_step(0)
    slabs = [job.random_slab() for _ in range(3)]
    every = range(len(job.model.blocks))
    job.push("w0", 1, slabs[0])
    job.push("w1", 1, slabs[1])
    job.push("w2", 1, slabs[2], absent=every)  # 2 samples for 3 ranks: the last has none
    job.check_settled(1, slabs)


def test_multipliers_of_keys(jobs: Jobs) -> None:
    keys = {"i:0": {"lr_mult": 0.5}, "i:5": {"wd_mult": 0.0}}
    job = jobs.begin(Job(TENSORS, OptimizerSpec("sgd", {"momentum": 0.9}, keys)), servers=2)
    for version in range(3):
        job.check_step(version)


def test_absent_key_keeps_value_and_count(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, ADAM), servers=2)
    first = job.check_step(0)
    block = job.model.blocks_of[1].start
    before = job.workers["w0"].values[1][block]
    job.push_all(1, absent=[block])
    for name in ("w0", "w1"):
        job.workers[name].await_version(2)
        assert job.workers[name].values[2][block] == before
    store = job.servers["s0"].state.store
    assert store.versions[block] == 2
    assert store.counts[block] == 1
    assert len(first) == 2


def test_keys_that_only_some_push_are_refused_by_name(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    block = job.model.blocks_of[1].start
    job.push("w0", 0, job.random_slab())
    job.push("w1", 0, job.random_slab(), absent=[block])
    for name in ("w0", "w1"):
        frame = job.workers[name].await_kind(Kind.REFUSED)
        assert frame.meta.reason == Reason.MISMATCH
        assert "key 1" in frame.meta.detail
        assert "0 (w0)" in frame.meta.detail
        assert "1 (w1)" in frame.meta.detail
    assert job.servers["s0"].state.store.versions[block] == 0


def test_pull_waits_for_first_values(jobs: Jobs) -> None:
    job = jobs.keep(Job(TENSORS))
    job.add_server("s0")
    first = job.next(["w0"], ["s0"], [0] * len(job.model.blocks))
    job.prepare(first, ["s0"])
    job.adopt(first, ["s0"])
    worker = job.add_worker("w0")
    every = [[0, len(job.model.blocks)]]
    worker.send("s0", Frame(PullMeta(runs=every), first.id, 0))
    assert not worker.received
    job.init()
    worker.await_version(0)
    assert np.array_equal(worker.slab(0), job.reference.slab)


def test_second_init_of_a_known_block_is_dropped(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.check_step(0)
    count = len(job.configuration.blocks_of["s0"])
    slab = job.random_slab()
    frame = Frame(InitMeta(runs=[[0, count]]), job.configuration.id, 0)
    job.workers["w0"].send("s0", frame, [slab[job.model.span((0, count))]])
    job.check_step(1)


def test_first_values_that_come_to_a_follower_are_held(jobs: Jobs) -> None:
    """It may own the block soon; the server that judged them again at once ended by that."""
    count = len(Job(TENSORS).model.blocks)
    job = jobs.begin(Job(TENSORS, followers=[1] * count), servers=2, assignment=[0] * count)
    frame = Frame(InitMeta(runs=[[0, count]]), job.configuration.id, 0)
    job.workers["w0"].send("s1", frame, [job.random_slab()])
    until(lambda: job.servers["s1"].state.held)
    job.check_step(0)
    assert job.servers["s1"].wait(0) is None


def test_a_push_that_comes_once_more_after_the_next_one_takes_nothing_back(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    old, new = job.check_step(0), [job.random_slab() for _ in range(2)]
    job.push("w0", 1, new[0])
    job.push("w0", 0, old[0])
    job.push("w1", 1, new[1])
    job.check_settled(1, new)


def test_stale_push_is_refused_and_names_the_current(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.check_step(0)
    old = job.configuration
    new = job.next(["w0", "w1"], ["s0", "s1"], old.assignment)
    job.prepare(new, ["s0", "s1"])
    job.adopt(new, ["s0", "s1"])
    job.push("w0", 1, job.random_slab(), old)
    frame = job.workers["w0"].await_kind(Kind.REFUSED)
    assert frame.meta.reason == Reason.STALE
    assert ConfigId(*frame.meta.configuration) == new.id
    job.check_step(1)


def test_push_of_a_prepared_configuration_switches_the_server(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.check_step(0)
    new = job.next(["w0", "w1"], ["s0", "s1"], job.configuration.assignment)
    job.prepare(new, ["s0", "s1"])
    job.check_step(1, new)
    for control in job.controls.values():
        control.await_answer(pb.SWITCHED, number=new.id)
    assert job.workers["w1"].await_kind(Kind.NOTICE).configuration == new.id


def test_push_of_an_unknown_newer_configuration_is_held(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.check_step(0)
    new = job.next(["w0", "w1"], ["s0", "s1"], job.configuration.assignment)
    slabs = [job.random_slab() for _ in range(2)]
    job.push("w0", 1, slabs[0], new)
    job.push("w1", 1, slabs[1], new)
    for worker in ("w0", "w1"):
        job.drain(worker)  # a push that came after the Prepare would switch at once
    job.prepare(new, ["s0", "s1"])
    job.adopt(new, ["s0", "s1"])
    job.check_settled(1, slabs, new)


def test_repeated_push_replaces_what_was_kept(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    slabs = [job.random_slab() for _ in range(2)]
    job.push("w0", 0, job.random_slab())
    job.push("w0", 0, slabs[0])
    job.drain("w0")
    job.push("w1", 0, slabs[1])
    job.check_settled(0, slabs)


def test_push_below_the_version_is_answered_with_the_value(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    slabs = job.check_step(0)
    for worker in job.workers.values():
        worker.values.clear()
    job.push("w1", 0, slabs[1])
    job.workers["w1"].await_version(1)
    assert np.array_equal(job.workers["w1"].slab(1), job.reference.slab)
    job.check_step(1)


def test_shadow_gets_every_version(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.check_step(0)
    shadow = job.add_worker("w9")
    for server in job.servers:
        shadow.send(server, Frame(SubscribeMeta(), job.configuration.id))
    shadow.await_version(1)
    assert np.array_equal(shadow.slab(1), job.reference.slab)
    for version in (1, 2, 3):
        job.check_step(version)
        shadow.await_version(version + 1)
        assert np.array_equal(shadow.slab(version + 1), job.reference.slab)


def test_push_of_a_stranger_is_refused(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    stranger = job.add_worker("w7")
    stranger.send("s0", Frame(PushMeta(absent=[[0, 1]]), job.configuration.id, 0, 4))
    assert stranger.await_kind(Kind.REFUSED).meta.reason == Reason.UNKNOWN


@pytest.mark.parametrize(
    "frame",
    [
        Frame(PushMeta(runs=[[0, 1]]), ConfigId(1, 1), 0, 4),  # no payload
        Frame(PushMeta(runs=[[10_000, 1]]), ConfigId(1, 1), 0, 4),
        Frame(PushMeta(absent=[[-1, 1]]), ConfigId(1, 1), 0, 4),
        Frame(SnapshotMeta(), ConfigId(1, 1)),
        Frame(PushMeta(runs=[[0.5, 1]]), ConfigId(1, 1), 0, 4),
        Frame(PushMeta(hyper={**HYPER.to_dict(), "lr": "abc"}), ConfigId(1, 1), 0, 4),
    ],
)
def test_malformed_frames_end_the_connection_only(jobs: Jobs, frame: Frame) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.workers["w1"].send("s0", frame)
    refused = job.workers["w1"].await_kind(Kind.REFUSED)
    assert refused.meta.reason == Reason.MALFORMED
    assert job.workers["w1"].connect(job.members["s0"]).kind is Kind.ACCEPTED
    job.check_step(0)


def test_ledger_has_one_entry_a_step(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    for version in range(2):
        job.check_step(version)
    report = job.servers["s0"].report()
    assert [entry.version for entry in report.ledger] == [0, 1]
    owned = job.configuration.blocks_of["s0"]
    assert list(report.ledger[0].runs) == [owned[0], len(owned)]
    slices = [(part.worker, part.low, part.high) for part in report.ledger[1].slices]
    assert slices == [("w0", 8, 12), ("w1", 12, 16)]
    job.servers["s0"].reported(pb.ReportReply(ledger_kept=1), report)
    assert [entry.version for entry in job.servers["s0"].report().ledger] == [1]


def test_two_thousand_small_tensors_are_few_operations(jobs: Jobs) -> None:
    tensors = tuple(Tensor(0, f"i:{number}", (16,), "float32") for number in range(2000))
    job = jobs.begin(Job(tensors, SGD), workers=1, servers=1)
    store = job.servers["s0"].state.store
    assert list(store.segments((0, 2000), store.counts)) == [(0, 2000)]
    job.check_step(0)
    assert np.array_equal(tensor_view(job.model, job.workers["w0"].slab(1), 5), job.reference.slab[320:384].view("f4"))
