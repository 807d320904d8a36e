"""A server keeps gradients until the factor on all of them is known; see `docs/reference/protocol.md`."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.gradient_norm import SKIPPED
from elastic_ps.core.model import Run, runs
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.state.awaited_peers import awaited_peers
from elastic_ps.server.updates import sync_updates
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import FactorMeta, PushMeta, SquaresMeta, ValueMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.server_desk import FIRST, Desk
from tests.elastic_ps.server.server_reference import HYPER, SGD, TENSORS

DATA = DataSpec(True, 24, 9)  # three samples for each of the three workers
WORKERS = ("w0", "w1", "w2")
SQUARED = Hyper(HYPER.lr, HYPER.wd, HYPER.rescale_grad, HYPER.clip_gradient, max_norm=1.0)


def desk() -> Desk:
    return Desk(data=DATA)


def push(
    played: Desk,
    worker: str,
    slab: np.ndarray,
    hyper: Hyper | None = SQUARED,
    version: int = 0,
    runs: Any = None,
    scaling: str = "",
    absent: Sequence[Run] = (),
) -> list[Frame]:
    runs = runs or played.every
    position = 3 * WORKERS.index(worker)
    meta = PushMeta(
        runs=tuple(runs),
        absent=tuple(absent),
        slice=(0, 0, 0, position, position + 3),
        hyper=hyper if worker == "w0" else None,
        skip_overflow=worker == scaling,
    )
    data = np.concatenate([slab[played.model.span(run)] for run in runs])
    return played.arrives(worker, Frame(meta, FIRST, version, 3), data)


def push_all(played: Desk, slabs: list[np.ndarray], **more: Any) -> list[Frame]:
    return [frame for worker, slab in zip(WORKERS, slabs, strict=True) for frame in push(played, worker, slab, **more)]


def factor(played: Desk, value: float, worker: str = "w0", version: int = 0, number: ConfigId = FIRST) -> list[Frame]:
    return played.arrives(worker, Frame(FactorMeta(factor=value), number, version))


def span_of(played: Desk, tensor: int) -> slice:
    blocks = played.model.blocks_of[tensor]
    return played.model.span((blocks.start, len(blocks)))


def total(played: Desk, slabs: list[np.ndarray], tensor: int) -> np.ndarray:
    """The sum of the gradients of a tensor, in float64."""
    span, kind = span_of(played, tensor), played.model.tensors[tensor].dtype
    return sum(slab[span].view(kind).astype(np.float64) for slab in slabs)


def test_gradients_wait_for_their_factor() -> None:
    played = desk()
    slabs = [played.slab() for _ in WORKERS]
    before = played.image()
    answers = push_all(played, slabs)
    optimized = [number for number, tensor in enumerate(TENSORS) if not tensor.auxiliary]
    (asked,) = [frame for frame in answers if frame.kind is Kind.SQUARES]
    told = {block for first, count in asked.runs for block in range(first, first + count)}
    assert told == {block for tensor in optimized for block in played.model.blocks_of[tensor]}
    assert [node for node, frame, _ in played.sent.frames if frame.kind is Kind.SQUARES] == ["w0"]
    found = asked.of(SquaresMeta)
    expected = sum(float((total(played, slabs, tensor) ** 2).sum()) for tensor in optimized)
    assert sum(found.squares) == pytest.approx(expected, rel=1e-5)
    assert found.hyper.max_norm == 1.0
    values = played.image()
    for tensor in optimized:
        span = span_of(played, tensor)
        assert values[span] == before[span]
    answers = factor(played, 0.5)
    assert {frame.kind for frame in answers} == {Kind.VALUE}
    assert {frame.of(ValueMeta).factor for frame in answers} == {0.5}
    assert (played.state.store.versions == 1).all()


def test_the_factor_multiplies_what_has_been_added() -> None:
    clipped, halved = desk(), desk()
    slabs = [clipped.slab() for _ in WORKERS]
    assert halved.slab().tobytes() == slabs[0].tobytes()  # both begin alike
    push_all(clipped, slabs)
    factor(clipped, 0.5)
    for slab in slabs:
        for number, tensor in enumerate(TENSORS):
            slab[span_of(clipped, number)].view(tensor.dtype)[...] *= 0.5  # exact, before the sum as behind it
    push_all(halved, slabs, hyper=HYPER)
    for number, tensor in enumerate(TENSORS):
        if not tensor.auxiliary:
            span = span_of(clipped, number)
            assert clipped.image()[span] == halved.image()[span]


def test_a_skipped_exchange_is_in_the_ledger_and_changes_nothing() -> None:
    played = desk()
    before = played.image()
    push_all(played, [played.slab() for _ in WORKERS])
    factor(played, 0.0)
    after = played.image()
    for number, tensor in enumerate(TENSORS):
        span = span_of(played, number)
        assert (after[span] == before[span]) is not tensor.auxiliary
    assert (played.state.store.versions == 1).all()
    optimized = [not played.model.tensors[block.tensor].auxiliary for block in played.model.blocks]
    assert not played.state.store.counts[optimized].any()
    entries = played.state.ledger.report()[1]
    runs = sorted(run for entry in entries for run in zip(entry.runs[::2], entry.runs[1::2], strict=True))
    assert sum(count for _, count in runs) == len(played.model.blocks)


@pytest.mark.parametrize("scaling", ["", "w1", "w2"])
def test_the_gradients_of_a_worker_that_alone_scales_them_are_looked_at(scaling: str) -> None:
    """It is on a GPU, and the chief on a CPU, where a GradScaler does nothing: the overflow was applied."""
    played = desk()
    slabs = [played.slab() for _ in WORKERS]
    slabs[1][span_of(played, 0)].view(np.float32)[0] = np.inf
    before = played.image()
    asked = [frame for frame in push_all(played, slabs, hyper=HYPER, scaling=scaling) if frame.kind is Kind.SQUARES]
    assert [frame.of(SquaresMeta).hyper.skip_overflow for frame in asked] == ([True] if scaling else [])
    if scaling:
        factor(played, SKIPPED)
        after = played.image()
        spans = [span_of(played, number) for number, tensor in enumerate(TENSORS) if not tensor.auxiliary]
        assert all(after[span] == before[span] for span in spans)


def test_who_scales_gradients_of_one_key_store_does_not_of_another() -> None:
    tensors = tuple(replace(tensor, store=store) for store in (0, 1) for tensor in TENSORS[:2])
    played = Desk(tensors, (SGD, SGD), data=DATA)
    halves = [
        [run for number in numbers for run in runs(played.model.blocks_of[number])] for numbers in ((0, 1), (2, 3))
    ]
    for version, store in enumerate((0, 1, 0)):
        slabs = [played.slab() for _ in WORKERS]
        here, other = halves[store], halves[1 - store]
        scaling = "w1" if version == 0 else ""
        answers = push_all(played, slabs, runs=here, absent=other, hyper=HYPER, version=version, scaling=scaling)
        assert [frame.kind for frame in answers].count(Kind.SQUARES) == (1 - store), "once it is heard it counts"
        if store == 0:
            factor(played, 1.0, version=version)
        assert (played.state.store.versions == version + 1).all()


def test_what_is_not_finite_is_told_as_such() -> None:
    played = desk()
    slabs = [played.slab() for _ in WORKERS]
    slabs[1].view(np.float32)[0] = np.inf
    (asked,) = [frame for frame in push_all(played, slabs) if frame.kind is Kind.SQUARES]
    assert asked.of(SquaresMeta).squares[0] == -1
    assert min(asked.of(SquaresMeta).squares[1:]) >= 0


def test_what_comes_after_the_factor_is_applied_at_once() -> None:
    """As after a death: some blocks had been updated, and the others are pushed again."""
    played = desk()
    slabs = [played.slab() for _ in WORKERS]
    first, rest = [(0, 1)], [(1, played.every[0][1] - 1)]
    push_all(played, slabs, runs=first)
    factor(played, 0.25)
    assert played.state.store.versions.tolist() == [1] + [0] * (played.every[0][1] - 1)
    answers = push_all(played, slabs, runs=rest)
    assert {frame.kind for frame in answers} == {Kind.VALUE}
    assert (played.state.store.versions == 1).all()
    again = push(played, "w1", slabs[1])
    assert [frame.of(ValueMeta).factor for frame in again] == [0.25]  # so that another chief decides the same


def test_a_push_that_comes_again_is_asked_for_again() -> None:
    played = desk()
    slabs = [played.slab() for _ in WORKERS]
    push_all(played, slabs)
    assert {frame.kind for frame in push(played, "w0", slabs[0])} == {Kind.SQUARES, Kind.VALUE}  # the auxiliary ones'
    assert awaited_peers(played.state)[0].peer == "w0"
    assert "FACTOR for version 0" in awaited_peers(played.state)[0].what


def test_only_the_chief_decides() -> None:
    played = desk()
    push_all(played, [played.slab() for _ in WORKERS])
    with pytest.raises(ProtocolError, match="w1 sent a FACTOR, and is not the chief, w0"):
        factor(played, 0.5, worker="w1")


def test_a_factor_of_an_earlier_version_is_not_taken_for_the_present_one() -> None:
    played = desk()
    push_all(played, [played.slab() for _ in WORKERS])
    factor(played, 0.5)
    push_all(played, [played.slab() for _ in WORKERS], version=1)
    factor(played, 0.5)
    assert (played.state.store.versions[:1] == 1).all()
    factor(played, 1.0, version=1)
    assert (played.state.store.versions == 2).all()


def between_groups(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have updates made in groups of two blocks, and something done in another thread behind each but the last."""

    def rest(_seconds: float) -> None:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), "the lock is held"

    monkeypatch.setattr(sync_updates, "_GROUP_BYTES", 1024)
    monkeypatch.setattr(sync_updates.time, "sleep", rest)


def test_others_have_their_turn_while_the_factor_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large share takes longer than a lease: the server could not report, and was taken for stopped."""
    played, seen, awaited = desk(), [], []
    push_all(played, [played.slab() for _ in WORKERS])

    def look() -> None:
        with played.state.changed:
            seen.append(int((played.state.store.versions == 1).sum()))
            awaited.extend(awaited_peers(played.state))

    between_groups(monkeypatch, look)
    answers = factor(played, 0.5)
    assert len(seen) > 2
    assert seen == sorted(set(seen))
    assert not awaited, "the chief has said it"
    assert len(answers) > len(seen)
    assert (played.state.store.versions == 1).all()


def test_the_groups_make_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, grouped = desk(), desk()
    slabs = [whole.slab() for _ in WORKERS]
    for played in (whole, grouped):
        push_all(played, slabs)
        factor(played, 0.25)
        between_groups(monkeypatch, lambda: None)
    assert whole.image() == grouped.image()


def test_a_worker_that_dies_between_the_groups_is_waited_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    played, deaths = desk(), []
    slabs = [played.slab() for _ in WORKERS]
    push_all(played, slabs)

    def die() -> None:
        with played.state.changed:
            if not deaths:
                played.state.gathering.drop_worker(2)
            deaths.append(int(played.state.store.versions.sum()))

    between_groups(monkeypatch, die)
    factor(played, 0.5)
    assert deaths == [deaths[0]]
    assert int(played.state.store.versions.sum()) == deaths[0]
    push(played, "w2", slabs[2])
    assert (played.state.store.versions == 1).all()


def test_a_factor_that_was_held_is_applied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    played, turns = desk(), []
    push_all(played, [played.slab() for _ in WORKERS])
    between_groups(monkeypatch, lambda: turns.append(1))
    following, state = ConfigId(1, 2), played.state
    factor(played, 0.5, number=following)
    assert state.held
    assert not state.store.versions.all()
    assert state.standing.current is not None
    state.standing = replace(state.standing, current=replace(state.standing.current, id=following))
    with state.changed:
        state.retry()
    assert (state.store.versions == 1).all()
    assert not turns
