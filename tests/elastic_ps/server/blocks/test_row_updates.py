"""Gradients of some rows: one server's state, frames in and frames out, against a table in numpy."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run, Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.core.sparse_rows import Rows, payload_bytes, received, rows_of, summed
from elastic_ps.optimizers import make_rule
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.server_desk import FIRST, Desk, travelled
from tests.elastic_ps.server.server_reference import HYPER

LAZY = OptimizerSpec("sgd", {"momentum": 0.9, "lazy_update": True})
ADAM = OptimizerSpec("adam", {"lazy_update": True})
WORKERS = ("w0", "w1", "w2")
TABLE = Tensor(0, "i:0", (40, 10), "float32")  # 8 rows in a block, 5 blocks
HALF = Tensor(0, "i:1", (9, 2, 3), "float16")
EVERY: Run = (0, 5)


class Table:
    """What a table must be: rows without a gradient stay, in their states, too, where the rule skips them."""

    def __init__(self, values: NDArray[Any], spec: OptimizerSpec):
        self.values, self.rule, self.count = values.copy(), make_rule(spec), 0
        self.states = {name: np.zeros_like(values, dtype) for name, dtype in self.rule.states(values.dtype)}

    def update(self, rows: Rows) -> None:
        self.count += 1
        if not self.rule.skips_absent_rows(HYPER):
            rows = Rows(np.arange(len(self.values)), rows.dense(range(len(self.values))).reshape(self.values.shape))
        at = rows.numbers
        value, states = self.values[at].ravel(), {name: state[at].ravel() for name, state in self.states.items()}
        self.rule.update(value, rows.values.ravel(), states, self.count, HYPER)
        self.values[at] = value.reshape(self.values[at].shape)
        for name, state in self.states.items():
            state[at] = states[name].reshape(state[at].shape)


def some_rows(rng: np.random.Generator, rows: range, most: int, width: int = 10) -> Rows:
    numbers = np.sort(rng.choice(rows, rng.integers(0, most), replace=False)).astype(np.int64)
    return Rows(numbers, rng.normal(size=(len(numbers), width)).astype(np.float32))


def desk_of(spec: OptimizerSpec, data: DataSpec | None = None, tensors: tuple[Tensor, ...] = (TABLE,)) -> Desk:
    return Desk(tensors, [spec], data or DataSpec())


def frame_of(run_list: list[Run], counts: list[Any] | None, version: int, **meta: Any) -> Frame:
    runs = [list(run) for run in run_list]
    return Frame(PushMeta(runs=runs, rows=counts, hyper=HYPER.to_dict(), **meta), FIRST, version, 1)


def push(desk: Desk, worker: str, rows: Rows, version: int, runs: tuple[Run, ...] = (EVERY,), **meta: Any) -> None:
    parts = [rows.between(held) for run in runs if (held := rows_of(desk.model, run)) is not None]
    frame = frame_of(list(runs), [len(part) for part in parts], version, **meta)
    raw = [array.reshape(-1).view(np.uint8) for part in parts for array in part.payload()]
    frame.payload_bytes = sum(part.nbytes for part in raw)
    desk.arrives(worker, frame, np.concatenate(raw))


def table(desk: Desk) -> NDArray[np.float32]:
    return np.frombuffer(desk.image(), np.float32)[:400].reshape(40, 10)


@pytest.mark.parametrize("spec", [LAZY, ADAM, OptimizerSpec("adagrad"), OptimizerSpec("sgd", {"momentum": 0.9})])
def test_rows_of_all_workers_are_one_update(spec: OptimizerSpec) -> None:
    desk, rng = desk_of(spec), np.random.default_rng(3)
    reference = Table(table(desk), spec)
    for version in range(8):
        given = [some_rows(rng, range(40), 9) for _ in WORKERS]
        for worker, rows in zip(WORKERS, given, strict=True):
            push(desk, worker, rows, version, runs=((0, 2), (2, 3)))
        reference.update(summed(given, None, 1.0))
        assert table(desk).tobytes() == reference.values.tobytes()
        assert desk.state.store.versions.tolist() == [version + 1] * 5


def test_dense_gradients_in_between_and_beside_rows() -> None:
    desk, rng = desk_of(LAZY), np.random.default_rng(4)
    reference = Table(table(desk), LAZY)
    for version in range(9):
        given = [some_rows(rng, range(40), 5) for _ in WORKERS]
        for worker, rows in zip(WORKERS, given, strict=True):
            if version % 3 == 1 or (version % 3 == 2 and worker == "w1"):
                slab = np.pad(rows.dense(range(40)).view(np.uint8), (0, desk.model.slab_bytes - 1600))
                desk.push(worker, BatchId(worker, version), slab, version=version)
            else:
                push(desk, worker, rows, version)
        whole = summed(given, None, 1.0)
        if version % 3:
            whole = Rows(np.arange(40), whole.dense(range(40)).reshape(40, 10))
        reference.update(whole)
        np.testing.assert_array_equal(table(desk), reference.values)


@pytest.mark.parametrize("loss", ["sum", "mean"])
def test_rows_are_normalised_as_dense_gradients_are(loss: str) -> None:
    data, rng = DataSpec(True, 24, 8, loss=loss), np.random.default_rng(5)
    plain = OptimizerSpec("sgd")
    sparse, dense = (Desk((TABLE,), [plain], data) for _ in range(2))
    for worker in WORKERS:
        rows = some_rows(rng, range(40), 30)
        slab = np.pad(rows.dense(range(40)).view(np.uint8), (0, sparse.model.slab_bytes - 1600))
        push(sparse, worker, rows, 0)
        frame = frame_of([EVERY], None, 0)
        dense.arrives(worker, frame, slab)
    np.testing.assert_allclose(table(sparse), table(dense), rtol=1e-6)  # weight decay acts on all rows of both: wd > 0
    assert sparse.state.store.versions.tolist() == [1] * 5


def test_where_values_travel_only_changed_rows_do() -> None:
    desk, rng = desk_of(LAZY), np.random.default_rng(6)
    desk.sent.sharing = {"w0", "w2"}
    held = table(desk).copy()
    for version in range(5):
        desk.sent.frames.clear()
        given = [some_rows(rng, range(40), 4) for _ in WORKERS]
        for worker, rows in zip(WORKERS, given, strict=True):
            push(desk, worker, rows, version)
        for node, frame, payload in desk.sent.frames:
            assert (frame.kind, frame.version) == (Kind.VALUE, version + 1)
            if node != "w1":
                assert frame.meta.rows is None
                continue
            joined = np.concatenate([part.reshape(-1).view(np.uint8) for part in payload])
            ends = np.cumsum(payload_bytes(desk.model, frame.runs, frame.meta.rows))
            found = received(desk.model, frame.runs, frame.meta.rows, np.split(joined, ends[:-1]))
            changed = sorted(number for rows in found for number in rows.numbers.tolist())
            assert changed == summed(given, None, 1.0).numbers.tolist()
            for rows in found:
                held[rows.numbers] = rows.values
        assert held.tobytes() == table(desk).tobytes()
        covered = dict.fromkeys(WORKERS, 0)
        for node, frame, _ in desk.sent.frames:
            covered[node] += sum(count for _, count in frame.runs)
        assert covered == dict.fromkeys(WORKERS, 5)


def test_async_pushes_of_rows_are_updates_of_their_own() -> None:
    desk, rng = desk_of(LAZY, DataSpec(consistency="async")), np.random.default_rng(7)
    reference = Table(table(desk), LAZY)
    for number in range(4):
        for worker in WORKERS:
            rows = some_rows(rng, range(40), 6)
            push(desk, worker, rows, number, batch=[worker, number])
            reference.update(rows)
            assert table(desk).tobytes() == reference.values.tobytes()


def test_rows_of_other_dtypes_and_shapes() -> None:
    spec = OptimizerSpec("sgd", {"momentum": 0.9, "lazy_update": True, "multi_precision": True})
    desk = desk_of(spec, tensors=(HALF,))
    rows = Rows(np.array([0, 8]), np.ones((2, 6), np.float16))
    before = np.frombuffer(desk.image(), np.float16)[:54].reshape(9, 6).copy()
    for worker in WORKERS:
        push(desk, worker, rows, 0, runs=((0, 1),))
    after = np.frombuffer(desk.image(), np.float16)[:54].reshape(9, 6)
    assert np.flatnonzero((before != after).any(axis=1)).tolist() == [0, 8]


@pytest.mark.parametrize(
    ("runs", "counts"),
    [
        ([EVERY], 3),
        ([EVERY], [1, 1]),
        ([EVERY], [-1]),
        ([EVERY], [41]),
        ([EVERY], ["1"]),
        ([(0, 6)], [1]),
    ],
)
def test_rows_that_cannot_be_are_refused_before_anything_is_allocated(runs: list[Run], counts: Any) -> None:
    desk = desk_of(LAZY, tensors=(TABLE, Tensor(0, "i:1", (3,), "float32")))
    with pytest.raises(ProtocolError, match="rows"):
        desk.worker_frames.buffers("w0", travelled(frame_of(runs, counts, 0)), desk.gradients["w0"], lambda: None)


@pytest.mark.parametrize("numbers", [[3, 3], [4, 3], [-1, 2], [7, 40]])
def test_rows_must_ascend_and_exist(numbers: list[int]) -> None:
    desk = desk_of(LAZY)
    raw = np.concatenate([np.array(numbers).view(np.uint8), np.ones((2, 10), np.float32).reshape(-1).view(np.uint8)])
    with pytest.raises(ProtocolError, match="are not ascending, or not among"):
        desk.arrives("w0", frame_of([EVERY], [2], 0), raw)
