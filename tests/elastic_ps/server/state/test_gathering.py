"""Contributions to open updates: kept, and added by rank."""

import numpy as np

from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model, Tensor
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.phases import BlockStatus, Given
from elastic_ps.server.state.gathering import Gathering


def gather(contributions: list[np.ndarray], samples: list[int], data: DataSpec) -> np.ndarray:
    gathering = Gathering(1, [f"w{rank}" for rank in range(len(contributions))])
    for rank, array in enumerate(contributions):
        gathering.keep(rank, (0, 1), Given.GRADIENT, array.view(np.uint8))
    assert list(gathering.complete((0, 1))) == [(0, 1)]
    before = [array.copy() for array in contributions]
    tensor = Tensor(0, "i:0", contributions[0].shape, contributions[0].dtype.name)
    store = ServerBlockStore(Model())
    store.grow(Model((tensor,)), [""])
    store.allocate([0], BlockStatus.PRIMARY)
    combined = gathering.combine((0, 1), samples, store, None, data)
    assert isinstance(combined, GradientSum)
    whole = combined.whole()
    assert whole.tobytes() == combined.part(0, len(combined)).tobytes()
    assert [array.tobytes() for array in contributions] == [array.tobytes() for array in before]  # sent again as it is
    return whole


def test_contributions_are_added_in_rank_order() -> None:
    arrays = [np.array([value], dtype=np.float32) for value in (1e8, 1.0, -1e8)]
    assert gather(arrays, [1, 1, 1], DataSpec())[0] == np.float32(np.float32(1e8) + np.float32(1)) - np.float32(1e8)
    assert gather(arrays[::-1], [1, 1, 1], DataSpec())[0] == 0


def test_mean_of_halves_does_not_overflow() -> None:
    arrays = [np.full(4, 60_000, dtype=np.float16)] * 2
    assert gather(arrays, [500, 500], DataSpec(True, 10_000, 1000, loss="mean")).tolist() == [60_000.0] * 4


def test_integers_are_summed_as_such() -> None:
    arrays = [np.array([2**53 + 1], dtype=np.int64), np.array([1], dtype=np.int64)]
    assert gather(arrays, [1, 1], DataSpec())[0] == 2**53 + 2
    assert gather(arrays[1:] * 2, [1, 1], DataSpec(True, 64, 4))[0] == 4


def test_dead_worker_leaves_the_run_incomplete() -> None:
    gathering = Gathering(4, ["w0", "w1"])
    data = np.zeros(256, dtype=np.uint8)
    for rank in (0, 1):
        gathering.keep(rank, (0, 4), Given.GRADIENT, data)
    gathering.drop_worker(1)
    assert not list(gathering.complete((0, 4)))
    gathering.keep(1, (1, 2), Given.ABSENT)
    assert list(gathering.complete((0, 4))) == [(1, 2)]
    gathering.drop((0, 4))
    assert not gathering._kept
