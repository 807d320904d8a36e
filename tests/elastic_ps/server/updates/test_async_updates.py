"""Every push of an async or ssp job is an update: one server's state, frames in and frames out, no socket."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId, Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.server.blocks.applied_batches import AppliedBatches, BatchId
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import InitMeta, PullMeta, PushMeta, SubscribeMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.server_desk import DATA, FIRST, Desk
from tests.elastic_ps.server.server_reference import ADAM, HYPER, SGD

# ---- updates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [SGD, ADAM])
@pytest.mark.parametrize(
    "data",
    [
        DATA,
        replace(DATA, samples=21),  # the last step of 5 is scaled to 8
        replace(DATA, samples=21, loss="mean", consistency="ssp", staleness=1),
    ],
)
def test_every_push_is_an_update_answered_to_its_worker_alone(spec: OptimizerSpec, data: DataSpec) -> None:
    desk = Desk(specs=[spec], data=data)
    pushes = [("w0", 0), ("w0", 1), ("w2", 0), ("w1", 0), ("w2", 1)]
    for count, (worker, version) in enumerate(pushes):
        desk.update(worker, version, count, version)
        assert desk.sent.frames[-1][1].meta.updates == count + 1
    assert set(desk.state.store.versions) == {len(pushes)}


def test_static_data_is_not_scaled_and_leaves_no_slices() -> None:
    desk = Desk(data=DataSpec(consistency="async"))
    slab = desk.slab()
    desk.push("w1", BatchId("w1", 7), slab, version=7)
    desk.reference.update([slab], [5])
    assert desk.image() == desk.reference.slab.tobytes()
    (entry,) = desk.state.ledger.report()[1]
    assert (list(entry.runs), list(entry.slices)) == (list(desk.every[0]), [])


def test_a_key_that_is_not_pushed_keeps_version_and_count() -> None:
    desk = Desk(specs=[ADAM])
    store, block = desk.state.store, desk.model.blocks_of[1].start
    desk.update("w0", 0, 0)
    before = desk.image()[desk.model.span((block, 1))]
    (answer,) = desk.push("w1", BatchId("w1", 0), desk.slab(), 1, absent=[block])
    assert answer.runs == desk.every
    assert desk.image()[desk.model.span((block, 1))] == before
    assert (store.versions[block], store.counts[block], set(np.delete(store.versions, block))) == (1, 1, {2})
    assert store.applied.has(BatchId("w1", 0), desk.every[0]).all()
    (answer,) = desk.push("w2", BatchId("w2", 0), desk.slab(), 2)
    assert (store.versions[block], store.counts[block], answer.meta.updates) == (2, 2, 3)
    entries = [(entry.version, list(entry.runs)) for entry in desk.state.ledger.report()[1]]
    others = [0, block, block + 1, desk.every[0][1] - block - 1]
    assert entries == [(0, list(desk.every[0])), (1, others), (1, [block, 1]), (2, others)]


def test_auxiliary_blocks_take_the_pusher_s_value_and_count_no_updates() -> None:
    tensors = (Tensor(0, "i:0", (9,), "float32"), Tensor(0, "s:mean", (9,), "float32", auxiliary=True))
    desk = Desk(tensors, data=replace(DATA, samples=21))
    for step, absent in enumerate(([0], [0], [])):
        slab = desk.slab()
        (answer,) = desk.push("w1", BatchId("w1", step), slab, step, absent=absent)
        assert np.array_equal(desk.state.store.value((1, 1)), slab[desk.model.span((1, 1))].view("f4"))
    assert answer.meta.updates == 1


def test_the_chief_s_hyperparameters_are_those_of_their_kvstore() -> None:
    tensors = tuple(Tensor(store, "i:0", (4,), "float32") for store in range(2))
    desk = Desk(tensors, specs=[OptimizerSpec("sgd")] * 2)
    one = np.ones(desk.model.slab_bytes // 4, dtype=np.float32).view(np.uint8)
    moved = []
    for worker, block, lr in (("w0", 0, 0.25), ("w0", 1, 0.5), ("w1", 0, 9.0), ("w2", 1, 9.0)):
        before = float(desk.state.store.value((block, 1))[0])
        desk.push(worker, BatchId(worker, block), one, blocks=[block], hyper=Hyper(lr=lr))
        moved.append(round(before - float(desk.state.store.value((block, 1))[0]), 3))
    assert moved == [0.25, 0.5, 0.25, 0.5]


def test_values_under_way_stay_when_others_push() -> None:
    desk = Desk()
    desk.update("w0", 0, 0)
    sent, known = desk.sent.frames[-1][2], desk.values()
    desk.update("w1", 0, 1)
    assert b"".join(part.tobytes() for part in sent) == known != desk.values()


@pytest.mark.parametrize(
    ("specs", "hyper", "key", "cure"),
    [
        ([SGD, None], HYPER, "i (store 1)", "set_optimizer"),
        ([SGD, OptimizerSpec("lamb")], HYPER, "i (store 1)", "whole tensors"),
        ([SGD, SGD], None, "w, i", "hyperparameters"),
    ],
)
def test_what_cannot_be_updated_is_refused_by_name(
    specs: list[OptimizerSpec | None], hyper: Hyper | None, key: str, cure: str
) -> None:
    tensors = (Tensor(0, "s:w", (9,), "float32"), Tensor(1, "s:i", (300,), "float32"))
    desk = Desk(tensors, specs)
    frames = desk.push("w1", BatchId("w1", 0), desk.slab(), hyper=hyper)
    refused = frames[-1]
    assert (refused.kind, refused.meta.reason) == (Kind.REFUSED, Reason.MISMATCH)
    assert all(f"key {name}" in refused.meta.detail for name in key.split(", "))
    assert cure in refused.meta.detail
    assert not desk.state.store.versions[1:].any()
    taken = desk.state.store.applied.has(BatchId("w1", 0), desk.every[0]).tolist()
    assert taken == [hyper is not None, False, False, False]


def test_integers_are_refused_unless_they_are_statistics() -> None:
    tensors = (Tensor(0, "s:w", (9,), "int32"), Tensor(0, "s:seen", (3,), "int64", auxiliary=True))
    desk = Desk(tensors)
    slab = desk.slab()
    value, refused = desk.push("w0", BatchId("w0", 0), slab)
    assert (value.runs, refused.kind) == ([(1, 1)], Kind.REFUSED)
    assert "int32" in refused.meta.detail
    assert np.array_equal(desk.state.store.value((1, 1)), slab[desk.model.span((1, 1))].view("i8"))


def test_the_chief_s_hyperparameters_count_once_they_are_known() -> None:
    tensors = (Tensor(0, "s:w", (1,), "float32"),)
    desk = Desk(tensors, [OptimizerSpec("sgd")])
    one = np.zeros(64, dtype=np.uint8)
    one.view("f4")[0] = 1

    def moved(worker: NodeId, number: int, lr: float) -> float:
        before = float(desk.state.store.value((0, 1))[0])
        desk.push(worker, BatchId(worker, number), one, hyper=Hyper(lr=lr))
        return round(before - float(desk.state.store.value((0, 1))[0]), 3)

    assert moved("w1", 0, 0.25) == 0.25
    assert moved("w0", 0, 0.5) == 0.5
    assert moved("w1", 1, 0.25) == 0.5
    desk.state.standing = desk.state.standing.prepare(
        Configuration(ConfigId(1, 2), *_without_chief(desk)), False, frozenset()
    )
    desk.switch()
    desk.push("w2", BatchId("w2", 0), one, number=ConfigId(1, 2), hyper=Hyper(lr=0.125))
    before = float(desk.state.store.value((0, 1))[0])
    desk.push("w1", BatchId("w1", 2), one, number=ConfigId(1, 2), hyper=Hyper(lr=2.0))  # the chief now
    assert round(before - float(desk.state.store.value((0, 1))[0]), 3) == 2.0


def _without_chief(desk: Desk) -> tuple[Any, ...]:
    configuration = desk.state.standing.current
    assert configuration is not None
    return configuration.workers[1:], configuration.servers, configuration.assignment


# ---- once ------------------------------------------------------------------------------------------------------------


def test_a_push_that_is_sent_again_changes_nothing() -> None:
    desk = Desk(specs=[ADAM])
    slab = desk.update("w0", 0, 0)
    desk.update("w1", 0, 1)
    before = desk.image()
    (answer,) = desk.push("w0", BatchId("w0", 0), slab)
    assert (answer.version, answer.meta.updates, desk.values()) == (1, 2, before)
    assert desk.image() == before
    desk.update("w2", 0, 2)
    assert desk.proof().exactly_once


def test_a_batch_that_another_worker_takes_over_enters_each_block_once() -> None:
    desk = Desk()
    half = list(range(desk.every[0][1] // 2))
    desk.update("w2", 0, 0)
    dying, again = desk.slab(), desk.slab()
    desk.push("w2", BatchId("w2", 1), dying, 1, 1, blocks=half)
    (answer,) = desk.push("w0", BatchId("w2", 1), again, 1)
    assert answer.runs == desk.every
    again[: desk.model.span((0, len(half))).stop] = dying[: desk.model.span((0, len(half))).stop]
    desk.reference.update([again], [8])
    assert desk.image() == desk.reference.slab.tobytes()
    assert not desk.proof().exactly_once
    desk.update("w0", 0, 2)
    assert desk.proof().exactly_once
    workers = {(entry.step, part.worker) for entry in desk.state.ledger.report()[1] for part in entry.slices}
    assert workers == {(0, "w2"), (1, "w2"), (1, "w0"), (2, "w0")}


@pytest.mark.parametrize("harm", ["lost", "doubled"])
def test_the_proof_can_fail(harm: str) -> None:
    desk = Desk()
    for step in range(2 if harm == "lost" else 3):
        desk.update("w0", step, step)
    if harm == "doubled":
        desk.state.store.applied.forget(desk.every)
        desk.push("w0", BatchId("w0", 2), desk.slab(), 2)
    assert desk.proof().problems


def test_a_push_waits_for_first_values() -> None:
    desk = Desk(filled=False)
    slab = desk.slab()
    assert not desk.push("w1", BatchId("w1", 0), slab)
    assert not desk.push("w1", BatchId("w1", 0), slab)  # a reconnect: it replaces the first
    value = desk.slab()
    (answer,) = desk.arrives("w0", Frame(InitMeta(runs=desk.every), FIRST, 0), value)
    assert (answer.kind, answer.version, answer.meta.updates) == (Kind.VALUE, 1, 1)
    assert set(desk.state.store.versions) == {1}


# ---- other frames ----------------------------------------------------------------------------------------------------


def test_a_pull_is_answered_under_its_own_version_in_one_frame() -> None:
    desk = Desk()
    block = desk.model.blocks_of[1].start
    desk.push("w0", BatchId("w0", 0), desk.slab(), absent=[block])  # two versions
    (answer,) = desk.arrives("w7", Frame(PullMeta(runs=desk.every), FIRST, 41))
    assert (answer.version, answer.runs, answer.meta.updates) == (41, desk.every, 1)
    assert desk.values() == desk.image()


def test_the_configuration_before_is_refused_and_names_the_present() -> None:
    desk = Desk()
    configuration = desk.state.standing.current
    assert configuration is not None
    desk.state.standing = desk.state.standing.prepare(replace(configuration, id=ConfigId(1, 2)), False, frozenset())
    desk.switch()
    (refused,) = desk.push("w1", BatchId("w1", 0), desk.slab())
    assert (refused.meta.reason, refused.meta.configuration) == (Reason.STALE, ConfigId(1, 2))
    assert not desk.state.store.versions.any()


@pytest.mark.parametrize("batch", [None, ["w0"], ["w0", -1], ["w0", "1"], [0, 1], 5])
def test_a_push_without_a_proper_batch_is_malformed(batch: Any) -> None:
    desk = Desk()
    with pytest.raises(ProtocolError, match="batch"):
        desk.arrives("w0", Frame(PushMeta(absent=desk.every, batch=batch), FIRST, 0, 8))


def test_there_are_no_shadows() -> None:
    desk = Desk()
    assert desk.arrives("w9", Frame(SubscribeMeta(), FIRST)) == []
    assert not desk.state.subscriptions


# ---- what blocks have taken ------------------------------------------------------------------------------------------


def test_what_blocks_have_taken_travels_with_them() -> None:
    one, other = AppliedBatches(), AppliedBatches()
    one.grow(4)
    one.take(BatchId("w0", 7), (0, 3))
    one.take(BatchId("w1", 2), (3, 1))
    assert one.image((1, 3)) == {"w0": [7, 7, -1], "w1": [-1, -1, 2]}
    assert one.image((0, 2)) == {"w0": [7, 7]}
    other.grow(4)
    other.take(BatchId("w5", 1), (0, 4))
    other.load((1, 3), one.image((1, 3)))
    assert other.image((0, 4)) == {"w5": [1, -1, -1, -1], "w0": [-1, 7, 7, -1], "w1": [-1, -1, -1, 2]}


def test_what_blocks_have_taken_grows_and_is_forgotten() -> None:
    applied = AppliedBatches()
    applied.grow(2)
    applied.take(BatchId("w0", 3), (0, 2))
    applied.grow(4)
    assert applied.has(BatchId("w0", 3), (0, 4)).tolist() == [True, True, False, False]
    assert applied.has(BatchId("w0", 4), (0, 1)).tolist() == [False]
    applied.forget([(1, 1)])
    assert applied.has(BatchId("w0", 0), (0, 4)).tolist() == [True, False, False, False]


def test_a_released_block_has_taken_nothing() -> None:
    desk = Desk()
    desk.update("w0", 0, 0)
    with desk.state.changed:
        desk.state.release([1])
    assert desk.state.store.applied.image(desk.every[0])["w0"][:3] == [0, -1, 0]


def test_a_block_that_comes_back_finds_no_memory_that_is_unused() -> None:
    desk = Desk()
    desk.update("w0", 0, 0)
    value = desk.state.store.value((1, 1))
    value[...] = 1
    with desk.state.changed:
        desk.state.release([1])
        assert value.min() == 1
        desk.state.allocate([1], BlockStatus.FOLLOWER)
    assert not desk.state.unused
    assert value.max() == 0
