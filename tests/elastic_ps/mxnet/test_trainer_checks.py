"""Trainers that would train something else with servers are refused, or told of."""

import logging
from collections.abc import Iterator
from typing import Any

import mxnet as mx
import pytest
from mxnet import autograd, gluon

from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.data.sampler import Sampler
from elastic_ps.mxnet import ElasticKVStore, trainer_checks
from tests.elastic_ps.mxnet.fake_store import FakeStore
from tests.elastic_ps.worker.instant_job import elastic_job, sgd

pytestmark = pytest.mark.mxnet

SAMPLES, BATCH = 12, 4


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trainers of other tests may be there yet."""
    monkeypatch.setattr(trainer_checks, "_elastic", type(trainer_checks._elastic)())
    trainer_checks._tell_of_another.cache_clear()
    yield
    trainer_checks._tell_of_another.cache_clear()


def network() -> gluon.nn.Dense:
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize(mx.init.One())
    return net


def make(parameters: Any, kvstore: Any = "dist_elastic", **settings: Any) -> gluon.Trainer:
    return gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1}, kvstore=kvstore, **settings)


def train(net: Any, *trainers: gluon.Trainer) -> None:
    with autograd.record():
        loss = net(mx.nd.ones((BATCH, 2)))
    loss.backward()
    for trainer in trainers:
        trainer.step(BATCH)


def test_two_trainers_of_one_parameter_are_refused() -> None:
    net = network()
    trainers = make(net.collect_params()), make([net.weight])
    steps = 0
    with elastic_job(sgd) as (_, exchanges):
        for _ in Sampler(SAMPLES, BATCH):
            if steps == 1:
                with pytest.raises(ConfigurationError, match=f"parameter {net.weight.name} has two Trainers"):
                    train(net, *trainers)
                break
            train(net, *trainers)
            steps += 1
        assert not exchanges  # the first batch, a rehearsal, makes none


def test_a_trainer_may_take_the_place_of_another() -> None:
    net, stores = network(), (FakeStore(), FakeStore())
    with elastic_job(sgd):
        for store in stores:
            trainer = make(net.collect_params(), ElasticKVStore(store))
            for _ in range(2):
                train(net, trainer)
    assert all(store.pushed for store in stores)


def test_trainers_may_share_parameters_where_each_worker_updates_them() -> None:
    net, stores = network(), (FakeStore(), FakeStore())
    trainers = [make(net.collect_params(), ElasticKVStore(store), update_on_kvstore=False) for store in stores]
    for _ in range(2):
        for trainer in trainers:
            train(net, trainer)
    assert all(store.pushed for store in stores)


def test_arrays_in_the_place_of_others_are_refused_where_workers_may_join() -> None:
    net, steps = network(), 0
    trainer = make(net.collect_params())
    with elastic_job(sgd) as (_, exchanges):
        for _ in Sampler(SAMPLES, BATCH):
            if steps == 1:
                with pytest.raises(ConfigurationError, match=f"parameter {net.bias.name} has other arrays than at"):
                    train(net, trainer)
                break
            train(net, trainer)
            net.collect_params().reset_ctx(mx.cpu())
            steps += 1
        assert not exchanges  # the first batch, a rehearsal, makes none


def test_a_script_with_data_of_its_own_may_take_other_arrays() -> None:
    net, store = network(), FakeStore()
    trainer = make(net.collect_params(), ElasticKVStore(store))
    for _ in range(2):
        train(net, trainer)
        net.collect_params().reset_ctx(mx.cpu())
    assert store.pushed


def clip(net: gluon.Block) -> None:
    gluon.utils.clip_global_norm([parameter.grad() for parameter in net.collect_params().values()], 0.1)


@pytest.mark.parametrize("consistency", ["sync", "async"])
def test_clipping_by_the_norm_of_a_workers_own_samples_is_refused_where_steps_are_shared(consistency: str) -> None:
    net, other, store = network(), network(), FakeStore()
    store.data = DataSpec(True, SAMPLES, BATCH, consistency=consistency)
    train(net, make(net.collect_params(), ElasticKVStore(store)))
    train(other, make(other.collect_params(), "device"))
    clip(other)
    if consistency == "async":  # each push is an update
        clip(net)
        return
    with pytest.raises(ConfigurationError, match="clip_global_norm of gradients that the workers add up"):
        clip(net)


def test_a_script_with_data_of_its_own_may_clip() -> None:
    net = network()
    train(net, make(net.collect_params(), ElasticKVStore(FakeStore())))
    clip(net)
    norm = sum(float((parameter.grad() ** 2).sum().asscalar()) for parameter in net.collect_params().values()) ** 0.5
    assert norm == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "batch", "told"), [("sum", 1, True), ("mean", 1, False), ("sum", BATCH, False)], ids=str
)
def test_a_mean_that_would_be_added_up_is_told_of_once(
    loss: str, batch: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    net = network()
    trainer = make(net.collect_params())
    with caplog.at_level(logging.WARNING), elastic_job(sgd):
        for _ in Sampler(SAMPLES, BATCH, loss=loss):
            with autograd.record():
                value = net(mx.nd.ones((BATCH, 2))).mean()
            value.backward()
            trainer.step(batch)
    texts = [record.message for record in caplog.records]
    assert [text[:46] for text in texts] == ["trainer.step(1) adds up the gradients of the 4"] * told


def test_a_loss_scaler_is_refused_where_servers_update() -> None:
    net = network()
    trainer = make(net.collect_params(), ElasticKVStore(FakeStore()))
    trainer._amp_loss_scaler = object()  # as amp.init_trainer does
    with pytest.raises(ConfigurationError, match="loss scaler"):
        train(net, trainer)


def test_a_trainer_that_nobody_made_elastic_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    net, other = network(), network()
    elastic, plain = make(net.collect_params(), ElasticKVStore(FakeStore())), make(other.collect_params(), "device")
    with caplog.at_level(logging.WARNING):
        train(other, plain)
        assert not caplog.records
        for _ in range(3):
            train(net, elastic)
            train(other, plain)
    assert [record.message[:25] for record in caplog.records] == ["a gluon.Trainer without k"]
