"""MXNet's KVStore contract, point by point."""

import mxnet as mx
import numpy as np
import pytest
from fake_store import FakeStore

import elastic_ps.mxnet.kvstore as kvstore_module
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.mxnet import ElasticKVStore
from elastic_ps.worker.api import KeyStore

pytestmark = pytest.mark.mxnet

ones, zeros = mx.nd.ones, mx.nd.zeros


def values(array) -> list:
    return array.asnumpy().tolist()


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


def test_integer_and_string_keys_are_different_keys(kv):
    kv.init([3, "3"], [ones(1), ones(1) * 2])
    a, b = zeros(1), zeros(1)
    kv.pull([3, "3"], out=[a, b])
    assert (values(a), values(b)) == ([1], [2])


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


def test_pushpull_of_an_elastic_step_writes_when_all_its_keys_are_pushed():
    kv = ElasticKVStore(FakeStore(learnt={"i:1", "i:2"}))
    kv.init([1, 2], [zeros(1)] * 2)
    first, second = zeros(1), zeros(1)
    kv.pushpull(1, ones(1), out=first)
    assert values(first) == [0]
    kv.pushpull(2, ones(1) * 2, out=second)
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


def test_priority_is_accepted(kv):
    kv.broadcast(1, ones(1), out=zeros(1), priority=-1)
    kv.push(1, ones(1), priority=-1)
    kv.pull(1, out=zeros(1), priority=-1)
    kv.pushpull(1, ones(1), priority=-1)


# ---- row-sparse ------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("optimizer", "warned"),
    [
        (mx.optimizer.SGD(), False),
        (mx.optimizer.SGD(momentum=0.9), True),
        (mx.optimizer.SGD(wd=0.1), True),
        (mx.optimizer.SGD(momentum=0.9, lazy_update=False), False),
        (mx.optimizer.Adam(), True),
        (mx.optimizer.Adam(lazy_update=False), False),
    ],
)
def test_a_lazy_update_that_servers_do_not_make_is_said_once(kv, recwarn, optimizer, warned):
    kv.set_optimizer(optimizer)
    kv.init("w", ones((3, 2)))
    for _ in range(2):
        kv.push("w", ones((3, 2)).tostype("row_sparse"))
    messages = [str(warning.message) for warning in recwarn]
    assert len(messages) == warned
    assert all("key w" in message and "lazy_update=False" in message for message in messages)


# ---- optimizer -------------------------------------------------------------------------------------------------------


def test_servers_update_with_the_values_of_the_scripts_optimizer(kv, fake):
    optimizer = mx.optimizer.SGD(learning_rate=0.5, rescale_grad=0.25)
    kv.set_optimizer(optimizer)
    kv.init(3, zeros(2))
    out = zeros(2)
    kv.pushpull(3, ones(2), out=out)
    assert values(out) == [-0.125] * 2
    optimizer.set_learning_rate(1)
    kv.pushpull(3, ones(2), out=out)
    assert values(out) == [-0.375] * 2
    assert [hyper.lr for hyper in fake.hypers] == [0.5, 1]
    assert "set_local_update" not in fake.calls


def test_a_difference_from_the_jobs_optimizer_is_a_warning(kv, fake):
    fake.warnings = ["momentum is 0.9 in the job, not 0"]
    with pytest.warns(UserWarning, match=r"momentum is 0\.9 in the job"):
        kv.set_optimizer(mx.optimizer.SGD())


def test_without_an_optimizer_workers_update_and_the_store_says_so_once(kv, fake):
    kv.init(1, ones(1))
    kv.push(1, ones(1))
    kv.pushpull(1, ones(1))
    assert fake.calls.count("set_local_update") == 1
    assert fake.calls.index("set_local_update") < fake.calls.index("push")


def test_states_travel_by_file(kv, fake, tmp_path):
    kv.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    kv.init(["a", 2], [ones(2), ones((2, 2))])
    kv.push(["a", 2], [ones(2), ones((2, 2))])
    path = tmp_path / "states"
    kv.save_optimizer_states(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["states"]

    other = FakeStore()
    reader = ElasticKVStore(other)
    reader.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    reader.init(["a", 2], [ones(2), ones((2, 2))])
    reader.load_optimizer_states(str(path))
    for key in ("s:a", "i:2"):
        np.testing.assert_array_equal(other.held[key].states["momentum"], fake.held[key].states["momentum"])


def test_a_saved_optimizer_comes_back_with_its_states(kv, fake, tmp_path):
    kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.3))
    kv.init(0, ones(2))
    for _ in range(3):
        kv.push(0, ones(2))
    path = str(tmp_path / "states")
    kv.save_optimizer_states(path, dump_optimizer=True)

    other = FakeStore()
    reader = ElasticKVStore(other)
    reader.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
    reader.init(0, ones(2))
    reader.load_optimizer_states(path)
    assert other.held["i:0"].count == 3
    reader.push(0, ones(2))
    assert other.hypers[-1].lr == 0.3


def test_a_file_of_another_optimizer_changes_nothing(kv, fake, tmp_path):
    kv.set_optimizer(mx.optimizer.Adam())
    kv.init(0, ones(2))
    kv.push(0, ones(2))
    path = str(tmp_path / "states")
    kv.save_optimizer_states(path)
    other = FakeStore()
    reader = ElasticKVStore(other)
    reader.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    with pytest.raises(ConfigurationError, match="key 0"):
        reader.load_optimizer_states(path)
    assert "load_optimizer_states" not in other.calls
    assert isinstance(reader._updater.optimizer, mx.optimizer.SGD)


def test_a_failed_save_leaves_the_old_file(kv, tmp_path, monkeypatch):
    kv.set_optimizer(mx.optimizer.SGD())
    path = tmp_path / "states"
    path.write_bytes(b"old")

    def full(*_args):
        raise OSError("disk full")

    monkeypatch.setattr(kvstore_module.os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        kv.save_optimizer_states(str(path))
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("states", b"old")]


# ---- the rest --------------------------------------------------------------------------------------------------------


def test_barriers_and_commands(kv, fake):
    kv.barrier()
    kv._barrier()
    kv.send_command_to_servers(7, "text")
    kv._send_command_to_servers(8, "more")
    assert fake.calls == ["barrier", "barrier"]
    assert fake.commands == [(7, "text"), (8, "more")]


REFUSALS = {
    "key of a wrong type": (lambda kv: kv.init(2.5, ones(1)), r"key 2\.5: a key is an int or a str, not float"),
    "numpy's integer": (lambda kv: kv.init(np.int64(1), ones(1)), "a key is an int or a str, not int64"),
    "bytes": (lambda kv: kv.push(b"w", ones(1)), "key b'w': a key is"),
    "lists of other lengths": (lambda kv: kv.push([1, 2], [ones(1)]), "2 keys need a list of 2 values, not 1"),
    "array for keys": (lambda kv: kv.push([1], ones(1)), "1 keys need a list of 1 values, not NDArray"),
    "numpy array": (lambda kv: kv.push(1, np.ones(1)), "key 1: an NDArray or a list of them is needed"),
    "no arrays": (lambda kv: kv.push(1, []), "key 1: an NDArray or a list of them is needed"),
    "number in the list": (lambda kv: kv.push("w", [ones(1), 2]), "key w: an NDArray is needed, not int"),
    "two first values": (lambda kv: kv.init(1, [ones(1), ones(1)]), "key 1: initialized with 2 values; give one"),
    "csr": (lambda kv: kv.init("w", ones((2, 2)).tostype("csr")), "key w: storage type 'csr'"),
    "pull without out": (lambda kv: kv.pull("w"), "key w: pull needs out="),
    "row_sparse_pull without rows": (
        lambda kv: kv.row_sparse_pull("w", out=mx.nd.sparse.zeros("row_sparse", (2, 2))),
        "key w: row_sparse_pull needs out= and row_ids=",
    ),
    "too many rows": (
        lambda kv: kv.row_sparse_pull(
            "w", out=mx.nd.sparse.zeros("row_sparse", (2, 2)), row_ids=[mx.nd.array([0]), mx.nd.array([1])]
        ),
        "key w: 2 row_ids for 1 arrays",
    ),
    "rows of a wrong type": (
        lambda kv: kv.row_sparse_pull("w", out=mx.nd.sparse.zeros("row_sparse", (2, 2)), row_ids=[[0]]),
        "key w: row_ids must be an NDArray, not int",
    ),
    "sparse pushpull": (
        lambda kv: kv.pushpull("w", ones((2, 2)).tostype("row_sparse")),
        "key w: pushpull takes no row-sparse arrays; use push, then row_sparse_pull",
    ),
    "out without value": (lambda kv: kv.pushpull([1], [ones(1)], out=[]), "1 keys need a list of 1 values, not 0"),
    "compression": (
        lambda kv: kv.set_gradient_compression({"type": "2bit"}),
        r"gradient compression \{'type': '2bit'\} is not supported: gradients travel uncompressed",
    ),
    "updater": (lambda kv: kv._set_updater(print), "cannot run the updater"),
    "save without optimizer": (
        lambda kv: kv.save_optimizer_states("x"),
        "cannot save optimizer states: .* no optimizer",
    ),
    "load without optimizer": (
        lambda kv: kv.load_optimizer_states("x"),
        "cannot load optimizer states: .* no optimizer",
    ),
    "foreign optimizer": (lambda kv: kv.set_optimizer(mx.optimizer.Signum()), "Signum"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_key_and_the_reason(kv, fake, name):
    act, message = REFUSALS[name]
    with pytest.raises(ConfigurationError, match=message):
        act(kv)
    assert fake.calls == []


def test_a_second_init_is_refused(kv):
    kv.init("w", ones(2))
    with pytest.raises(ConfigurationError, match="key w"):
        kv.init("w", ones(2))
    with pytest.raises(ConfigurationError, match="key w"):
        kv.broadcast("w", ones(2), out=zeros(2))
