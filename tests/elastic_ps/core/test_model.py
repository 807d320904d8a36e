from itertools import accumulate, pairwise
from math import lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import ALIGNMENT, Model, Tensor, members, runs
from elastic_ps.core.sparse_rows import rows_of

tensors = st.lists(
    st.tuples(st.lists(st.integers(0, 9), max_size=3), st.sampled_from(["float32", "float64", "float16"])), max_size=8
).map(lambda made: tuple(Tensor(0, f"i:{i}", tuple(shape), dtype) for i, (shape, dtype) in enumerate(made)))


@given(tensors, st.sampled_from([64, 128, 1024]))
def test_blocks_cover_every_tensor_once_and_stand_aligned(made, block_bytes):
    model = Model(made, block_bytes)
    position = 0
    for number, block in enumerate(model.blocks):
        assert block.id == number
        assert block.position == position
        assert block.position % ALIGNMENT == 0
        assert block.nbytes <= block_bytes
        position += block.extent
    assert model.slab_bytes == position
    for index, tensor in enumerate(made):
        held = [model.blocks[block] for block in model.blocks_of[index]]
        assert sum(block.nbytes for block in held) == tensor.nbytes
        assert [block.offset for block in held] == [0, *accumulate(block.nbytes for block in held[:-1])]
        assert held[0].position + tensor.nbytes <= held[-1].position + held[-1].extent


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([64, 128, 1024]))
def test_blocks_hold_whole_rows_where_some_fit(rows, width, block_bytes):
    model = Model((Tensor(0, "i:0", (rows, width), "float32"),), block_bytes)
    held = [rows_of(model, (block.id, 1)) for block in model.blocks]
    assert model.holds_rows(0) == (None not in held)
    if lcm(4 * width, ALIGNMENT) <= block_bytes or len(held) == 1:
        assert [row for part in held for row in part] == list(range(rows))


def test_rows_are_not_those_of_several_tensors_or_of_a_part_of_one():
    model = Model((Tensor(0, "i:0", (2, 3), "float32"), Tensor(0, "i:1", (2, 48), "float32")), 64)
    assert rows_of(model, (0, 1)) == range(2)
    assert rows_of(model, (0, 2)) is None
    assert len(model.blocks_of[1]) == 6
    assert rows_of(model, (1, 1)) is None
    assert rows_of(model, (1, 6)) == range(2)


@given(st.sets(st.integers(0, 60)))
def test_runs_are_the_shortest_cover(ids):
    found = list(runs(sorted(ids)))
    assert list(members(found)) == sorted(ids)
    assert all(first + count < following for (first, count), (following, _) in pairwise(found))


def test_a_tensor_that_must_stay_whole_is_one_block():
    model = Model((Tensor(0, "i:0", (1000,), "float32", divisible=False),), 64)
    assert len(model.blocks) == 1


def test_a_model_grows_at_its_end_and_refuses_another_shape():
    first, second = Tensor(0, "i:0", (3,), "float32"), Tensor(0, "i:1", (4,), "float32")
    model = Model((first,)).extended([first, second, second])
    assert model.tensors == (first, second)
    with pytest.raises(ConfigurationError, match=r"key 0: declared as \(5,\) float32.*\(3,\)"):
        model.extended([Tensor(0, "i:0", (5,), "float32")])


def test_block_bytes_are_checked():
    with pytest.raises(ConfigurationError, match="multiple of 64"):
        Model(block_bytes=100)


@pytest.mark.slow
@given(tensors.filter(bool), st.sampled_from([64, 128]), st.data())
def test_of_tensors_at_once_as_one_by_one(made, block_bytes, data):
    model = Model(made, block_bytes)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(made) - 1), max_size=6)), dtype=np.int64)
    where = np.array([data.draw(st.integers(-1, 1)) for _ in model.blocks], dtype=np.int64)
    assert model.blocks_among(chosen).tolist() == [block for index in chosen for block in model.blocks_of[index]]
    values, alike = model.whole(where, chosen)
    for index, value, is_one in zip(chosen, values, alike, strict=True):
        of_blocks = where[model.blocks_of[index].start : model.blocks_of[index].stop].tolist()
        assert (value, is_one) == (of_blocks[0], len(set(of_blocks)) == 1)
        assert model.extents[index].tolist() == [
            model.blocks_of[index].start,
            model.blocks[model.blocks_of[index].start].position,
            made[index].nbytes,
        ]
