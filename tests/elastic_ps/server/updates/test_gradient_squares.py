"""Squares of aggregated gradients, dense and by rows, block by block; see `test_norm` for what they are for."""

import numpy as np
import pytest

from elastic_ps.core.sparse_rows import Rows
from elastic_ps.optimizers.gradient_sum import CHUNK, GradientSum
from elastic_ps.server.updates.gradient_squares import scaled, squares
from tests.elastic_ps.server.server_desk import Desk


def whole(played: Desk, tensor: int) -> tuple[int, int]:
    blocks = played.model.blocks_of[tensor]
    return blocks.start, len(blocks)


def test_rows_have_the_squares_that_they_have_dense() -> None:
    played = Desk()
    store, segment = played.state.store, whole(played, 0)  # of 40 rows of 10, in several blocks
    values = np.random.default_rng(1).standard_normal((3, 10)).astype(np.float32)
    rows = Rows(np.array([0, 17, 39]), values)
    assert segment[1] > 2
    found = squares(store, segment, rows)
    dense = np.zeros(store.span([segment]) // 4, np.float32)
    dense[:400] = rows.dense(range(40))
    assert found == squares(store, segment, GradientSum([dense]))
    assert sum(found) == pytest.approx(float((values.astype(np.float64) ** 2).sum()))
    assert found[0] > 0
    assert found.count(0.0) == segment[1] - sum(total > 0 for total in found)


def test_contributions_are_added_before_they_are_squared() -> None:
    played = Desk()
    store, segment = played.state.store, whole(played, 5)
    length = store.span([segment]) // 4
    random = np.random.default_rng(1)
    one, other = (random.standard_normal(length).astype(np.float32) for _ in range(2))
    found = squares(store, segment, GradientSum([one, other], [0.25, 0.75]))
    expected = (one * np.float32(0.25) + other * np.float32(0.75)).astype(np.float64)
    assert sum(found) == pytest.approx(float((expected**2).sum()), rel=1e-6)
    assert length < CHUNK


@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_a_factor_rounds_once(factor: float) -> None:
    values = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    expected = values * np.float32(factor)
    rows = scaled(Rows(np.arange(4), values), factor)
    assert isinstance(rows, Rows)
    assert np.array_equal(rows.values, expected)
    dense = scaled(GradientSum([values.reshape(-1)]), factor)
    assert isinstance(dense, GradientSum)
    assert np.array_equal(dense.whole(), expected.reshape(-1))
