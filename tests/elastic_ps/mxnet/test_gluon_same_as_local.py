"""Gluon's Trainer through MXNet's `local` kvstore and through ours ends with the same bits."""

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from elastic_ps.mxnet import ElasticKVStore
from tests.elastic_ps.mxnet.fake_store import FakeStore
from tests.elastic_ps.mxnet.two_stores import BATCH, Values, batches, check_same

pytestmark = pytest.mark.mxnet


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


def backward(net: Any, devices: list[mx.Context], images: mx.nd.NDArray, labels: mx.nd.NDArray) -> None:
    """Gradients of a batch that the devices share."""
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    parts = zip(gluon.utils.split_and_load(images, devices), gluon.utils.split_and_load(labels, devices), strict=True)
    with autograd.record():
        losses = [loss_of(net(part), label) for part, label in parts]
    autograd.backward(losses)


def train(net: Any, trainer: gluon.Trainer, devices: list[mx.Context], data: Any = None, batch: int = BATCH) -> None:
    for images, labels in data or batches():
        backward(net, devices, images, labels)
        trainer.step(batch)


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

    check_same(script)


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

    check_same(script)


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

    check_same(script)


def test_batch_norms_statistics_are_broadcast_and_never_pushed():
    store = FakeStore()
    net = convolutional()
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=ElasticKVStore(store))
    train(net, trainer, [mx.cpu()])
    never = {f"i:{number}" for number, parameter in enumerate(trainer._params) if parameter.grad_req == "null"}
    assert len(never) == 2
    assert store.broadcasted - store.pushed == never


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_trainer_with_local_update(devices):
    def script(store: Any) -> Values:
        net = convolutional()
        net.initialize(mx.init.Xavier(), ctx=devices)
        trainer = gluon.Trainer(
            net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=store, update_on_kvstore=False
        )
        train(net, trainer, devices, batches()[:3])
        for images, labels in batches()[3:]:
            backward(net, devices, images, labels)
            trainer.allreduce_grads()
            for parameter in net.collect_params().values():
                for gradient in parameter.list_grad() if parameter.grad_req != "null" else ():
                    gluon.utils.clip_global_norm([gradient], 0.1)
            trainer.update(BATCH)
        return named(net)

    check_same(script)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("sgd", {"learning_rate": 0.5}),
        ("sgd", {"momentum": 0.9, "wd": 0.01}),
        ("sgd", {"momentum": 0.9, "wd": 0.01, "lazy_update": False}),
        ("adam", {"wd": 0.01}),
    ],
)
@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_trainer_with_sparse_gradients(optimizer, settings, devices):
    def script(store: Any) -> Values:
        net = nn.HybridSequential()
        net.add(nn.Embedding(20, 4, sparse_grad=True), nn.Dense(3))
        net.initialize(mx.init.Xavier(), ctx=devices)
        words = [(mx.nd.floor(words * 20), labels) for words, labels in batches((5,))]
        trainer = gluon.Trainer(net.collect_params(), optimizer, dict(settings), kvstore=store, update_on_kvstore=True)
        train(net, trainer, devices, words)
        return named(net)

    check_same(script)


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

    check_same(script)


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

    check_same(script)


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

    check_same(script)


def test_a_changed_learning_rate_reaches_the_servers():
    def script(store: Any) -> Values:
        net = convolutional()
        net.initialize(mx.init.Xavier())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
        train(net, trainer, [mx.cpu()], batches()[:3])
        trainer.set_learning_rate(0.01)
        train(net, trainer, [mx.cpu()], batches()[3:])
        return named(net)

    check_same(script)
