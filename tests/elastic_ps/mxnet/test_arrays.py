"""Arrays are read and written in place, in order with MXNet's engine."""

import gc

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.mxnet.arrays import DeviceArray, MXNetHostArray, RowSparseArray, Wrappers, wrap, wrap_rows

pytestmark = pytest.mark.mxnet

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]


@pytest.mark.parametrize("kind", [MXNetHostArray, DeviceArray])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 1, 3, 4)])
def test_what_is_written_is_read(kind, dtype, shape):
    values = (np.arange(np.prod(shape)).reshape(shape) % 5).astype(dtype)
    array = mx.nd.zeros(shape, dtype=dtype)
    adapted = kind(array)
    assert (adapted.shape, adapted.dtype) == (shape, dtype)

    adapted.write(values)

    np.testing.assert_array_equal(array.asnumpy(), values)
    assert adapted.read().dtype == dtype
    np.testing.assert_array_equal(adapted.read(), values)


def test_values_may_be_reused_after_a_write():
    for kind in (MXNetHostArray, DeviceArray):
        array, values = mx.nd.zeros((64, 64)), np.ones((64, 64), "float32")
        kind(array).write(values)
        values[:] = 7
        assert (array.asnumpy() == 1).all()


def test_a_scalar_needs_the_scope_in_which_its_shape_is_known():
    with mx.util.np_shape(True):
        scalar = mx.np.array(3.0)
    with pytest.raises(ConfigurationError, match="key w: shape \\(\\) means unknown"):
        wrap("w", scalar)


def test_small_arrays_are_looked_at_once():
    wrappers = Wrappers()
    small, other, large = mx.nd.zeros((4,)), mx.nd.zeros((5,)), mx.nd.zeros((1 << 16,))
    (first,) = wrappers.wrap("k", [small])
    assert wrappers.wrap("k", [small]) == [first]
    assert wrappers.wrap("k", [other])[0].shape == (5,)
    assert [array.shape for array in wrappers.wrap("k", [other, small])] == [(5,), (4,)]
    assert wrappers.wrap("k", [large])[0] is not wrappers.wrap("k", [large])[0]  # whoever drops it has its memory back
    small += 3
    assert first.read().tolist() == [3] * 4


def test_scalar():
    with mx.util.np_shape(True):
        array = mx.np.array(3.0)
        adapted = wrap("k", array)
        assert adapted.shape == ()
        adapted.write(adapted.read() * 2)
        assert array.item() == 6


def test_host_memory_is_viewed_not_copied():
    array = mx.nd.zeros((4,))
    adapted = wrap(0, array)
    view = adapted.read()
    adapted.write(np.arange(4, dtype="float32"))
    np.testing.assert_array_equal(view, [0, 1, 2, 3])
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_a_view_keeps_its_array_alive():
    views = [wrap(0, mx.nd.full((1000,), number)).read() for number in range(50)]
    gc.collect()
    for _ in range(50):
        mx.nd.zeros((1000,)).wait_to_read()  # would reuse the memory
    assert [view[0] for view in views] == list(range(50))


def test_a_slice_writes_into_its_parent():
    parent = mx.nd.zeros((4, 3))
    wrap(0, parent[1:3]).write(np.ones((2, 3), "float32"))
    assert parent.asnumpy().sum(axis=1).tolist() == [0, 3, 3, 0]


def test_a_read_waits_for_pending_writes_and_a_write_for_pending_reads():
    a = mx.nd.ones((300, 300))
    for _ in range(20):
        b = mx.nd.dot(a, a) / 300  # enqueued, mostly not done
        np.testing.assert_allclose(wrap(0, b).read()[0, 0], 1, rtol=1e-5)
        c = mx.nd.dot(a, a)
        wrap(0, a).write(np.full((300, 300), 2, "float32"))  # c still sees ones
        d = mx.nd.dot(a, a)
        assert c[0, 0].asscalar() == 300
        assert d[0, 0].asscalar() == 1200
        wrap(0, a).write(np.ones((300, 300), "float32"))


def test_an_error_of_a_pending_operator_surfaces_at_the_read():
    x = mx.nd.random.normal(0, -1, shape=(2,))  # refused when it runs
    with pytest.raises(mx.MXNetError):
        wrap(0, x).read()


def test_onednn_layouts_are_seen_through():
    """Inference leaves convolution weights in a blocked layout."""
    mx.random.seed(0)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(32, 3, in_channels=16), nn.Conv2D(32, 3, in_channels=32), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    images = mx.nd.random.uniform(shape=(4, 16, 12, 12))
    before = net(images).asnumpy()
    parameters = list(net.collect_params().values())
    expected = [parameter.data().asnumpy() for parameter in parameters]
    net(images).wait_to_read()
    for parameter, values in zip(parameters, expected, strict=True):
        np.testing.assert_array_equal(wrap(parameter.name, parameter.data()).read(), values)

    net(images).wait_to_read()
    for parameter, values in zip(parameters, expected, strict=True):
        wrap(parameter.name, parameter.data()).write(values * 2)
    changed = net(images).asnumpy()

    reference = nn.HybridSequential()
    reference.add(nn.Conv2D(32, 3, in_channels=16), nn.Conv2D(32, 3, in_channels=32), nn.Dense(10))
    reference.initialize()
    reference(images)
    for parameter, values in zip(reference.collect_params().values(), expected, strict=True):
        parameter.set_data(mx.nd.array(values * 2))
    assert not np.allclose(before, changed)
    np.testing.assert_allclose(changed, reference(images).asnumpy(), rtol=1e-5)


def test_row_sparse_reads_dense_and_writes_all_rows():
    dense = np.array([[0, 0], [1, 2], [0, 0], [3, 4]], "float32")
    array = mx.nd.array(dense).tostype("row_sparse")
    adapted = wrap(0, array)
    assert isinstance(adapted, RowSparseArray)
    np.testing.assert_array_equal(adapted.read(), dense)
    adapted.write(dense * 2)
    assert array.stype == "row_sparse"
    np.testing.assert_array_equal(array.asnumpy(), dense * 2)


def test_stored_rows_are_those_of_a_row_sparse_array():
    dense = np.array([[0, 0], [1, 2], [0, 0], [3, 4]], "float32")
    rows = wrap(0, mx.nd.array(dense).tostype("row_sparse")).stored_rows()
    assert rows.numbers.tolist() == [1, 3]
    assert rows.values.tolist() == [[1, 2], [3, 4]]
    assert wrap(0, mx.nd.array(dense)).stored_rows() is None
    none = wrap(0, mx.nd.sparse.zeros("row_sparse", (3, 2, 2))).stored_rows()
    assert (len(none), none.values.shape) == (0, (0, 4))
    twice = mx.nd.sparse.row_sparse_array((np.ones((2, 2)), [1, 1]), shape=(4, 2))
    assert wrap(0, twice).stored_rows() is None


def test_an_empty_row_sparse_array_reads_as_zeros():
    assert (wrap(0, mx.nd.sparse.zeros("row_sparse", (3, 2))).read() == np.zeros((3, 2))).all()


@pytest.mark.parametrize("ids", [[2, 0, 2], [1], [], [0, 1, 2, 3]])
def test_wrapped_rows_are_distinct_and_ascending(ids):
    values = np.arange(8, dtype="float32").reshape(4, 2) + 1
    out = mx.nd.sparse.zeros("row_sparse", (4, 2))
    rows = sorted(set(ids))
    wrap_rows(0, out, mx.nd.array(ids, dtype="int64")).write(values[rows])
    assert out.indices.asnumpy().tolist() == rows
    np.testing.assert_array_equal(out.data.asnumpy(), values[rows])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: np.ones(3), "key w: an NDArray is needed, not ndarray"),
        (lambda: mx.nd.ones((2, 2)).tostype("csr"), "key w: storage type 'csr'"),
        (lambda: mx.np.zeros((0, 3)), "key w: shape \\(0, 3\\) has no elements"),
        (lambda: mx.nd.ones((2,), dtype=np.dtype([("bfloat16", np.uint16)])), "key w: element type"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(make, message):
    with mx.util.np_shape(True), pytest.raises(ConfigurationError, match=message):
        wrap("w", make())


@pytest.mark.parametrize(
    ("ids", "message"),
    [([4], "row 4, but the array has rows 0 to 3"), ([-1], "row -1"), ([0.5], "whole numbers")],
)
def test_rows_that_do_not_exist_are_refused(ids, message):
    with pytest.raises(ConfigurationError, match=f"key w: .*{message}"):
        wrap_rows("w", mx.nd.sparse.zeros("row_sparse", (4, 2)), mx.nd.array(ids))


def test_rows_are_written_to_row_sparse_arrays_only():
    with pytest.raises(ConfigurationError, match=r"key w: .*'default'; use pull"):
        wrap_rows("w", mx.nd.zeros((4, 2)), mx.nd.array([0]))
