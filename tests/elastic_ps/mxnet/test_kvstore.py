"""MXNet's KVStore contract: how MXNet finds the store, and what it does with values."""

import mxnet as mx
import numpy as np
import pytest

import elastic_ps.mxnet.kvstore as kvstore_module
from elastic_ps.mxnet import ElasticKVStore
from elastic_ps.worker.script.api import KeyStore
from tests.elastic_ps.mxnet.fake_store import FakeStore
from tests.elastic_ps.mxnet.mx_arrays import ones, values, zeros

pytestmark = pytest.mark.mxnet


def test_the_fake_is_a_key_store():
    store: KeyStore = FakeStore()
    assert store.mode == "sync"


# ---- how MXNet finds it ----------------------------------------------------------------------------------------------


def test_created_by_name(monkeypatch, fake):
    monkeypatch.setattr(kvstore_module, "open_store", lambda _consistency: fake)
    for name in ("dist_elastic", "DIST_ELASTIC"):
        kv = mx.kv.create(name)
        assert isinstance(kv, ElasticKVStore)
        assert isinstance(kv, mx.kv.KVStore)
        kv.init(name, ones(1))
    assert list(fake.held) == ["s:dist_elastic", "s:DIST_ELASTIC"]


def test_each_object_opens_a_store_and_seeds_mxnet(monkeypatch):
    class Job:
        def __init__(self):
            self.seeders, self.stores = [], []

        def open_store(self, _consistency):
            self.stores.append(FakeStore())
            return self.stores[-1]

    job = Job()
    monkeypatch.setattr(kvstore_module, "current_job", lambda: job)
    first, second = ElasticKVStore(), ElasticKVStore()
    first.init(0, ones(1))
    second.init(0, ones(1))
    assert [list(store.held) for store in job.stores] == [["i:0"], ["i:0"]]
    assert job.seeders == [mx.random.seed]


@pytest.mark.parametrize("mode", ["sync", "async", "ssp"])
def test_type_rank_and_number_of_workers_are_the_jobs(kv, fake, mode):
    fake.mode, fake.rank, fake.num_workers = mode, 2, 5
    assert (kv.type, kv.rank, kv.num_workers) == (f"dist_elastic_{mode}", 2, 5)


def test_capabilities(kv):
    assert kv.is_capable("optimizer")
    assert kv.is_capable(mx.kv.KVStoreBase.OPTIMIZER)
    with pytest.raises(ValueError, match="unknown capability 'teleport'"):
        kv.is_capable("teleport")


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [3, 0, "weight", "3"])
def test_init_push_pull(kv, fake, key):
    kv.init(key, ones((2, 3)) * 2)
    out = zeros((2, 3))
    kv.pull(key, out=out)
    assert (out.asnumpy() == 2).all()
    kv.push(key, ones((2, 3)) * 8)
    kv.pull(key, out=out)
    assert (out.asnumpy() == 8).all()
    assert list(fake.held) == [f"i:{key}" if isinstance(key, int) else f"s:{key}"]


@pytest.mark.parametrize(("key", "other"), [(3, "3"), ("3", 3)])
def test_a_store_has_integers_or_strings_for_keys_not_both(kv, fake, key, other):
    kv.init(key, ones(1))
    with pytest.raises(mx.MXNetError, match=f"{type(other).__name__}, but this store's keys are {type(key).__name__}"):
        kv.init(other, ones(1))
    for act in (kv.push, kv.pull):
        with pytest.raises(mx.MXNetError, match="key 3"):
            act(other, zeros(1))
    assert len(fake.held) == 1


def test_lists_of_keys(kv):
    keys = ["4", "5", "6"]
    kv.init(keys, [ones(2)] * 3)
    outs = [zeros(2) for _ in keys]
    kv.push(keys, [ones(2) * factor for factor in (1, 2, 3)])
    kv.pull(keys, out=outs)
    assert [values(out) for out in outs] == [[1, 1], [2, 2], [3, 3]]


def test_tuples_and_nested_keys(kv):
    kv.init((1, (2, 3)), (ones(1), (ones(1) * 2, ones(1) * 3)))
    outs = [zeros(1) for _ in range(3)]
    kv.pull([1, [2, 3]], out=[outs[0], [outs[1], outs[2]]])
    assert [values(out) for out in outs] == [[1], [2], [3]]


def test_arrays_of_one_key_are_summed_and_written_to_every_device(kv):
    devices = [mx.cpu(0), mx.cpu(1)]
    kv.init(["a", "b"], [ones(2)] * 2)
    kv.push(["a", "b"], [[ones(2, device) * 3 for device in devices], [ones(2, device) for device in devices]])
    outs = [[zeros(2, device) for device in devices] for _ in range(2)]
    kv.pull(["a", "b"], out=outs)
    assert [[values(out) for out in each] for each in outs] == [[[6, 6], [6, 6]], [[2, 2], [2, 2]]]


def test_a_key_listed_twice_is_summed(kv):
    kv.init(7, ones(2))
    kv.push([7, 7], [ones(2), ones(2) * 3])
    out = zeros(2)
    kv.pull(7, out=out)
    assert values(out) == [4, 4]


def test_the_same_array_may_be_listed_for_several_keys(kv):
    kv.init([1, 2], [ones(2)] * 2)
    kv.push([1, 2], [ones(2)] * 2)
    outs = [zeros(2)] * 2
    kv.pull([1, 2], out=outs)
    assert values(outs[0]) == [1, 1]


def test_pushpull_writes_to_out_or_else_to_the_values(kv):
    kv.init([1, 2], [ones(2)] * 2)
    gradients, outs = [[ones(2), ones(2)], [ones(2)]], [[zeros(2)], [zeros(2), zeros(2)]]
    kv.pushpull([1, 2], gradients, out=outs)
    assert [[values(out) for out in each] for each in outs] == [[[2, 2]], [[1, 1], [1, 1]]]
    assert values(gradients[0][0]) == [1, 1]
    kv.pushpull([1, 2], gradients)
    assert [[values(out) for out in each] for each in gradients] == [[[2, 2], [2, 2]], [[1, 1]]]


def test_combined_pushpulls_write_at_the_end(kv):
    kv.init([1, 2], [zeros(1)] * 2)
    first, second = zeros(1), zeros(1)
    with kv.combined():
        kv.pushpull(1, ones(1), out=first)
        kv.pushpull(2, ones(1) * 2, out=second)
        assert (values(first), values(second)) == ([0], [0])
    assert (values(first), values(second)) == ([1], [2])


def test_broadcast_gives_the_jobs_values(fake):
    kv = ElasticKVStore(FakeStore(values={"i:4": np.full(2, 9, "float32")}))
    outs = [zeros(2), zeros(2)]
    kv.broadcast(4, ones(2), out=outs)
    assert [values(out) for out in outs] == [[9, 9], [9, 9]]
    other = ElasticKVStore(fake)
    other.broadcast(["a", "b"], [ones(1), [ones(1) * 2]], out=[zeros(1), [zeros(1), zeros(1)]])
    assert fake.broadcasted == {"s:a", "s:b"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3), (2, 1, 3, 1, 2)])
def test_element_types_and_shapes(kv, fake, dtype, shape):
    kv.init("k", ones(shape, dtype=dtype))
    kv.push("k", [ones(shape, dtype=dtype)] * 3)
    out = zeros(shape, dtype=dtype)
    kv.pull("k", out=out)
    assert (out.asnumpy() == 3).all()
    assert (fake.held["s:k"].value.dtype, fake.held["s:k"].value.shape) == (np.dtype(dtype), shape)


def test_numpy_arrays_of_mxnet(kv):
    with mx.util.np_shape(True):
        kv.init("scalar", mx.np.array(1.0))
        kv.push("scalar", mx.np.array(5.0))
        out = mx.np.array(0.0)
        kv.pull("scalar", out=out)
        assert out.item() == 5


def test_empty_lists_do_nothing(kv, fake):
    kv.init([], [])
    kv.broadcast([], [], out=[])
    kv.push([], [])
    kv.pull([], out=[])
    kv.pushpull([], [])
    kv.row_sparse_pull([], out=[], row_ids=[])
    assert fake.held == {}
    assert "set_local_update" not in fake.calls


@pytest.mark.parametrize("params", [{"type": "2bit", "threshold": 0.5}, {"type": "topk", "ratio": 0.1}], ids=str)
def test_compression_is_handed_on(kv, fake, params):
    kv.set_gradient_compression(params)
    assert fake.calls[-1] == f"set_compression {params['type']}"


def test_priority_is_accepted(kv):
    outs = [zeros(1) for _ in range(3)]
    kv.broadcast(1, ones(1), out=outs[0], priority=-1)
    kv.push(1, ones(1) * 2, priority=-1)
    kv.pull(1, out=outs[1], priority=-1)
    kv.pushpull(1, ones(1) * 3, out=outs[2], priority=-1)
    assert [values(out) for out in outs] == [[1], [2], [3]]


# ---- barriers and commands -------------------------------------------------------------------------------------------


def test_barriers_and_commands(kv, fake):
    kv.barrier()
    kv._barrier()
    kv.send_command_to_servers(7, "text")
    kv._send_command_to_servers(8, "more")
    assert fake.calls == ["barrier", "barrier"]
    assert fake.commands == [(7, "text"), (8, "more")]


def test_a_call_once_more_and_one_that_only_looks_like_it(kv):
    """What was found out about a list of arrays is kept, and must not be taken for another's."""
    keys, arrays, outs = [0, 1], [ones(2), ones(3)], [zeros(2), zeros(3)]

    def exchanged(pushed_keys, pushed, pulled_keys, pulled):
        kv.push(pushed_keys, pushed)
        kv.pull(pulled_keys, pulled)
        return [values(array) for array in pulled]

    kv.init(keys, arrays)
    for factor in (1, 2):  # the same objects with other values
        arrays[0][:] = factor
        assert exchanged(keys, arrays, keys, outs) == [[factor] * 2, [1, 1, 1]]
    arrays[0] = mx.nd.full(2, 7)  # the same list with another object
    assert exchanged(keys, arrays, keys, outs) == [[7, 7], [1, 1, 1]]
    assert exchanged([1, 0], [mx.nd.full(3, 5), arrays[0]], [1, 0], outs[::-1]) == [[5, 5, 5], [7, 7]]
    assert exchanged([0], [ones(2)], [0, 1], outs) == [[1, 1], [5, 5, 5]]
    assert exchanged([0, 0], [ones(2), ones(2)], [0], outs[:1]) == [[2, 2]]
