"""The same script through MXNet's own `local` kvstore and through ours ends with the same bits."""

import warnings
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from fake_store import FakeStore
from mxnet import autograd, gluon
from mxnet.gluon import nn

from elastic_ps.mxnet import ElasticKVStore, track_auxiliary

pytestmark = pytest.mark.mxnet

STEPS = 6
BATCH = 12
Values = dict[str, np.ndarray]
Script = Callable[[Any], Values]


def both(script: Script) -> None:
    """Run `script(kvstore)` twice and compare what it returns."""
    results = []
    for store in (mx.kv.create("local"), ElasticKVStore(FakeStore())):
        mx.random.seed(3)
        np.random.seed(3)  # MXNet's initializers draw from the global generator
        results.append(script(store))
    expected, got = results
    assert expected.keys() == got.keys()
    assert expected
    for name, values in expected.items():
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(got[name], values, err_msg=name)


def batches(shape: tuple[int, ...] = (4, 6, 6), dtype: str = "float32") -> list[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
    random = np.random.RandomState(5)
    return [
        (
            mx.nd.array(random.uniform(size=(BATCH, *shape)), dtype=dtype),
            mx.nd.array(random.randint(3, size=BATCH), dtype=dtype),
        )
        for _ in range(STEPS)
    ]


def named(net: Any) -> Values:
    """Parameters by their place: MXNet numbers the names of a process."""
    return {
        f"{number} {device}": data.asnumpy()
        for number, parameter in enumerate(net.collect_params().values())
        for device, data in enumerate(parameter.list_data())
    }


def convolutional() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3))  # shapes are inferred
    return net


def train(net: Any, trainer: gluon.Trainer, devices: list[mx.Context], data: Any = None, batch: int = BATCH) -> None:
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for images, labels in data or batches():
        parts = zip(
            gluon.utils.split_and_load(images, devices), gluon.utils.split_and_load(labels, devices), strict=True
        )
        with autograd.record():
            losses = [loss_of(net(part), label) for part, label in parts]
        autograd.backward(losses)
        trainer.step(batch)


# ---- Gluon -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}), ("adam", {"learning_rate": 0.01})],
)
def test_trainer(devices, hybrid, optimizer, settings):
    def script(store: Any) -> Values:
        net = convolutional()
        net.initialize(mx.init.Xavier(), ctx=devices)
        if hybrid:
            net.hybridize(static_alloc=True)
        train(net, gluon.Trainer(net.collect_params(), optimizer, dict(settings), kvstore=store), devices)
        return named(net)

    both(script)


def test_trainer_with_multipliers_schedule_and_clipping():
    def script(store: Any) -> Values:
        net = convolutional()
        net.initialize(mx.init.Xavier())
        net[0].weight.lr_mult = 0.5
        net[0].bias.wd_mult = 0.0
        net[3].bias.lr_mult = 0.0
        schedule = mx.lr_scheduler.FactorScheduler(2, factor=0.5, base_lr=0.2)
        settings = {"learning_rate": 0.2, "lr_scheduler": schedule, "wd": 0.01, "clip_gradient": 0.01}
        train(net, gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=store), [mx.cpu()])
        return named(net)

    both(script)


def test_trainer_in_half_precision_with_master_weights():
    class Linear(gluon.Block):  # MXNet's own Dense has no float16 on a CPU
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.params.get("weight", shape=(1, 10, 3), dtype="float16")

        def forward(self, x: Any) -> Any:
            return mx.nd.broadcast_mul(x.expand_dims(2), self.weight.data()).sum(axis=1)

    def script(store: Any) -> Values:
        net = Linear()
        net.initialize(mx.init.Xavier())
        settings = {"learning_rate": 0.05, "momentum": 0.9, "multi_precision": True}
        trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=store)
        train(net, trainer, [mx.cpu()], batches((10,), "float16"))
        return named(net)

    both(script)


def test_batch_norms_statistics_are_broadcast_and_never_pushed():
    store = FakeStore()
    net = convolutional()
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=ElasticKVStore(store))
    train(net, trainer, [mx.cpu()])
    never = {f"i:{number}" for number, parameter in enumerate(trainer._params) if parameter.grad_req == "null"}
    assert len(never) == 2
    assert store.broadcasted - store.pushed == never


def test_a_step_is_one_exchange_after_the_last_pushpull():
    """As in an elastic job, where nothing is written before all keys of the step are pushed."""

    def script(store: Any) -> Values:
        net = nn.HybridSequential()
        net.add(nn.Dense(8, activation="relu", in_units=10), nn.Dense(3, in_units=8))
        net.initialize(mx.init.Xavier())
        if isinstance(store, ElasticKVStore):
            store = ElasticKVStore(FakeStore(learnt={f"i:{number}" for number in range(4)}))
        train(net, gluon.Trainer(net.collect_params(), "adam", kvstore=store), [mx.cpu()], batches((10,)))
        return named(net)

    both(script)


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_trainer_with_local_update(devices):
    def script(store: Any) -> Values:
        net = convolutional()
        net.initialize(mx.init.Xavier(), ctx=devices)
        trainer = gluon.Trainer(
            net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=store, update_on_kvstore=False
        )
        train(net, trainer, devices, batches()[:3])
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        for images, labels in batches()[3:]:
            parts = zip(
                gluon.utils.split_and_load(images, devices), gluon.utils.split_and_load(labels, devices), strict=True
            )
            with autograd.record():
                losses = [loss_of(net(part), label) for part, label in parts]
            autograd.backward(losses)
            trainer.allreduce_grads()
            for parameter in net.collect_params().values():
                if parameter.grad_req != "null":
                    gluon.utils.clip_global_norm([parameter.list_grad()[0].copy()], 1.0)
            trainer.update(BATCH)
        return named(net)

    both(script)


@pytest.mark.parametrize("settings", [{"learning_rate": 0.5}, {"momentum": 0.9, "wd": 0.01, "lazy_update": False}])
@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_trainer_with_sparse_gradients(settings, devices):
    def script(store: Any) -> Values:
        net = nn.HybridSequential()
        net.add(nn.Embedding(20, 4, sparse_grad=True), nn.Dense(3))
        net.initialize(mx.init.Xavier(), ctx=devices)
        words = [(mx.nd.floor(words * 20), labels) for words, labels in batches((5,))]
        trainer = gluon.Trainer(net.collect_params(), "sgd", dict(settings), kvstore=store, update_on_kvstore=True)
        train(net, trainer, devices, words)
        return named(net)

    both(script)


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_trainer_with_sparse_weights(devices):
    class Lookup(gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.params.get("weight", shape=(20, 4), stype="row_sparse", grad_stype="row_sparse")
            self.dense = nn.Dense(3)

        def forward(self, words: Any) -> Any:
            rows = self.weight.row_sparse_data(words.reshape(-1))
            embedded = mx.nd.sparse.Embedding(words, rows, input_dim=20, output_dim=4, sparse_grad=True)
            return self.dense(embedded)

    def script(store: Any) -> Values:
        net = Lookup()
        net.initialize(mx.init.Uniform(), ctx=devices)
        words = [(mx.nd.floor(words * 20), labels) for words, labels in batches((5,))]
        # The first forward pass creates the kvstore, and then Trainer takes no other factor for a "dist" one.
        settings = {"learning_rate": 0.5, "rescale_grad": 1 / BATCH}
        train(net, gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=store), devices, words, batch=1)
        everything = mx.nd.arange(20, dtype="int64")
        return {"weight": net.weight.row_sparse_data(everything).asnumpy(), "dense": net.dense.weight.data().asnumpy()}

    both(script)


leaks = pytest.mark.filterwarnings("ignore:Exception ignored.*FileIO")  # MXNet's own load does not close its file


@leaks
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_trainer_goes_on_from_saved_states(tmp_path, optimizer):
    def script(store: Any) -> Values:
        ours = isinstance(store, ElasticKVStore)
        net = convolutional()
        net.initialize(mx.init.Xavier())
        settings = {"momentum": 0.9} if optimizer == "sgd" else {}
        trainer = gluon.Trainer(net.collect_params(), optimizer, settings, kvstore=store)
        train(net, trainer, [mx.cpu()], batches()[:3])
        path = str(tmp_path / f"{ours}")
        trainer.save_states(path)

        again = ElasticKVStore(FakeStore()) if ours else mx.kv.create("local")
        trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.2, **settings}, kvstore=again)
        trainer.load_states(path)
        rate = trainer.learning_rate
        train(net, trainer, [mx.cpu()], batches()[3:])
        return {**named(net), "rate": np.array(rate)}

    both(script)


@leaks
def test_states_that_mxnet_saved_are_read(tmp_path):
    """A checkpoint of plain MXNet goes on in an elastic job."""

    def script(store: Any) -> Values:
        net = convolutional()
        net.initialize(mx.init.Xavier())
        first = gluon.Trainer(net.collect_params(), "adam", kvstore=mx.kv.create("local"))
        train(net, first, [mx.cpu()], batches()[:3])
        path = str(tmp_path / "states")
        first.save_states(path)
        trainer = gluon.Trainer(net.collect_params(), "adam", kvstore=store)
        trainer.load_states(path)
        train(net, trainer, [mx.cpu()], batches()[3:])
        return named(net)

    both(script)


def test_a_changed_learning_rate_reaches_the_servers():
    def script(store: Any) -> Values:
        net = convolutional()
        net.initialize(mx.init.Xavier())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
        train(net, trainer, [mx.cpu()], batches()[:3])
        trainer.set_learning_rate(0.01)
        train(net, trainer, [mx.cpu()], batches()[3:])
        return named(net)

    both(script)


# ---- Module ----------------------------------------------------------------------------------------------------------


def symbol() -> Any:
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, name="conv")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, name="norm", fix_gamma=False), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="full"), name="softmax")


def iterator() -> mx.io.NDArrayIter:
    data = batches()
    return mx.io.NDArrayIter(
        mx.nd.concat(*[images for images, _ in data], dim=0),
        mx.nd.concat(*[labels for _, labels in data], dim=0),
        batch_size=BATCH,
    )


def fit(module: Any, store: Any, **settings: Any) -> Values:
    module.fit(
        iterator(),
        kvstore=store,
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, **settings},
        initializer=mx.init.Xavier(),
        num_epoch=2,
    )
    arguments, auxiliary = module.get_params()
    return {name: array.asnumpy() for name, array in {**arguments, **auxiliary}.items()}


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
@pytest.mark.parametrize("on_store", ["1", "0"])
def test_module_fit(devices, on_store, monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", on_store)
    both(lambda store: fit(mx.mod.Module(symbol(), context=devices), store))


def test_module_in_a_job_of_several_workers_divides_by_the_global_batch(fake):
    fake.num_workers = 4
    fit(mx.mod.Module(symbol()), ElasticKVStore(fake))
    assert fake.hypers[-1].rescale_grad == 1 / (4 * BATCH)


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_tracked_auxiliary_states_are_keys_that_are_never_pushed(fake, devices):
    module = track_auxiliary(mx.mod.Module(symbol(), context=devices))
    fit(module, ElasticKVStore(fake))
    assert fake.broadcasted - fake.pushed == {"s:aux:norm_moving_mean", "s:aux:norm_moving_var"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.init_optimizer(kvstore=ElasticKVStore(fake))  # ignored by MXNet, and so by the hook
    assert len(fake.broadcasted) == len(fake.held)


def test_a_joiner_takes_the_jobs_auxiliary_states_over():
    store = FakeStore(values={"s:aux:norm_moving_mean": np.full(8, 5, "float32")})
    module = track_auxiliary(mx.mod.Module(symbol()))
    data = iterator()
    module.bind(data.provide_data, data.provide_label)
    module.init_params()
    module.init_optimizer(kvstore=ElasticKVStore(store))
    place = module._aux_names.index("norm_moving_mean")
    assert module._exec_group.aux_arrays[place][0].asnumpy().tolist() == [5] * 8


def test_tracking_changes_nothing_with_another_store():
    both(lambda store: fit(track_auxiliary(mx.mod.Module(symbol())), mx.kv.create("local")))


# ---- plain scripts ---------------------------------------------------------------------------------------------------


def test_push_and_pull_in_any_order():
    def script(store: Any) -> Values:
        store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
        keys = [5, 3, 9]
        store.init(keys, [mx.nd.ones((2, 2)) * key for key in keys])
        outs = [mx.nd.zeros((2, 2)) for _ in keys]
        store.push(9, mx.nd.ones((2, 2)))
        store.push([3, 9], [mx.nd.ones((2, 2)), [mx.nd.ones((2, 2)), mx.nd.ones((2, 2))]])
        store.pull(keys, out=outs)
        store.push(5, mx.nd.ones((2, 2)))
        store.pull(5, out=outs[0])
        return {str(key): out.asnumpy() for key, out in zip(keys, outs, strict=True)}

    both(script)
