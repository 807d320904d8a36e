"""MXNet's KVStore contract: row-sparse values and gradients."""

import mxnet as mx
import pytest

from tests.elastic_ps.mxnet.mx_arrays import ones, values, zeros

pytestmark = pytest.mark.mxnet


def test_row_sparse_values_and_gradients(kv):
    kv.init("w", ones((4, 2)).tostype("row_sparse"))
    out = mx.nd.sparse.zeros("row_sparse", (4, 2))
    kv.row_sparse_pull("w", out=out, row_ids=mx.nd.array([2, 0, 2]))
    assert (out.stype, values(out.indices)) == ("row_sparse", [0, 2])
    assert values(out) == [[1, 1], [0, 0], [1, 1], [0, 0]]

    gradients = [
        mx.nd.sparse.row_sparse_array(([[1, 2]], [1]), shape=(4, 2)),
        mx.nd.sparse.row_sparse_array(([[1, 1], [5, 5]], [1, 3]), shape=(4, 2)),
    ]
    kv.push("w", gradients)
    dense = zeros((4, 2))
    kv.pull("w", out=dense)
    assert values(dense) == [[0, 0], [2, 3], [0, 0], [5, 5]]


def test_one_row_ids_serves_all_outs(kv):
    kv.init(1, ones((3, 2)))
    outs = [mx.nd.sparse.zeros("row_sparse", (3, 2)) for _ in range(2)]
    kv.row_sparse_pull(1, out=outs, row_ids=mx.nd.array([1]))
    assert [values(out.indices) for out in outs] == [[1], [1]]


def test_row_ids_for_each_out_of_several_keys(kv):
    kv.init([1, 2], [ones((3, 2)), ones((3, 2)) * 2])
    outs = [[mx.nd.sparse.zeros("row_sparse", (3, 2)) for _ in range(2)] for _ in range(2)]
    ids = [[mx.nd.array([row]) for row in each] for each in ([0, 1], [2, 0])]
    kv.row_sparse_pull([1, 2], out=outs, row_ids=ids)
    assert [[values(out.indices) for out in each] for each in outs] == [[[0], [1]], [[2], [0]]]
    assert values(outs[1][0].data) == [[2, 2]]


def test_pull_leaves_row_sparse_outs_alone_unless_told(kv):
    kv.init(1, ones((3, 2)))
    sparse, dense = mx.nd.sparse.zeros("row_sparse", (3, 2)), zeros((3, 2))
    kv.pull(1, out=[sparse, dense])
    assert (values(sparse.indices), values(dense)) == ([], [[1, 1]] * 3)
    kv.pull(1, out=sparse, ignore_sparse=False)
    assert values(sparse) == [[1, 1]] * 3
