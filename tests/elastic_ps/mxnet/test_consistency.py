"""The kvstore's names, with MXNet's own Trainer and Module: what they do with "async" and "ssp"."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import elastic_ps.mxnet.kvstore as kvstore_module
from elastic_ps.core.errors import ConfigurationError
from tests.elastic_ps.mxnet.fake_store import FakeStore

pytestmark = pytest.mark.mxnet


@pytest.fixture
def opened(monkeypatch):
    """(the consistency that was asked for, the store) of each kvstore object."""
    stores: list[tuple[str | None, FakeStore]] = []

    def open_store(consistency):
        store = FakeStore()
        store.mode = consistency or "sync"
        stores.append((consistency, store))
        return store

    monkeypatch.setattr(kvstore_module, "open_store", open_store)
    return stores


def trainer_of(name, **more):
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize(mx.init.One())
    return net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, kvstore=name, **more)


def step(net, trainer, size=4):
    with autograd.record():
        loss = net(mx.nd.ones((size, 2))).sum()
    loss.backward()
    trainer.step(size)


@pytest.mark.parametrize(
    ("name", "asked", "kind"),
    [
        ("dist_elastic", None, "dist_elastic_sync"),
        ("dist_elastic_sync", "sync", "dist_elastic_sync"),
        ("dist_elastic_async", "async", "dist_elastic_async"),
        ("dist_elastic_ssp", "ssp", "dist_elastic_ssp"),
    ],
)
def test_the_name_says_what_is_expected_of_the_job(opened, name, asked, kind):
    assert mx.kv.create(name).type == kind
    assert [consistency for consistency, _store in opened] == [asked]


@pytest.mark.parametrize("name", ["dist_elastic_sync", "dist_elastic_async", "dist_elastic_ssp"])
def test_trainer_updates_on_the_servers(opened, name):
    net, trainer = trainer_of(name)
    for _ in range(2):
        step(net, trainer)
    ((_consistency, store),) = opened
    assert store.calls[0] == "set_optimizer"
    assert {held.count for held in store.held.values()} == {2}
    np.testing.assert_allclose(net.weight.data().asnumpy(), 1 - 2 * 0.5)
    assert store.hypers[0].rescale_grad == 1 / 4


def test_trainer_itself_refuses_async_with_the_optimizer_in_the_worker(opened):
    net, trainer = trainer_of("dist_elastic_async", update_on_kvstore=False)
    with pytest.raises(ValueError, match="Please set update_on_kvstore=True when training in async mode"):
        step(net, trainer)
    assert opened[0][1].calls == []


def test_ssp_with_the_optimizer_in_the_worker_is_refused_before_anything_is_pushed(opened):
    net, trainer = trainer_of("dist_elastic_ssp", update_on_kvstore=False)
    with pytest.raises(ConfigurationError, match='"ssp" needs an optimizer on the servers'):
        step(net, trainer)
    assert "push" not in opened[0][1].calls


@pytest.mark.parametrize(("name", "scale"), [("dist_elastic_sync", 1 / 12), ("dist_elastic_async", 1 / 4)])
def test_module_takes_its_own_batch_for_the_size_of_an_update_where_each_push_is_one(opened, name, scale):
    data = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="out")
    module = mx.mod.Module(mx.sym.LinearRegressionOutput(data, mx.sym.Variable("label")), label_names=["label"])
    module.bind([("data", (4, 2))], [("label", (4, 1))])
    module.init_params(mx.init.One())
    kv = mx.kv.create(name)
    opened[0][1].num_workers = 3
    module.init_optimizer(kv, "sgd", {"learning_rate": 0.5})
    module.forward_backward(mx.io.DataBatch([mx.nd.ones((4, 2))], [mx.nd.zeros((4, 1))]))
    module.update()
    ((_consistency, store),) = opened
    assert store.hypers[0].rescale_grad == pytest.approx(scale)
    assert store.held["s:out_weight"].count == 1
