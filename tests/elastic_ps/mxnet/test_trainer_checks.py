"""Trainers that would train something else with servers are refused, or told of."""

import logging
from collections.abc import Iterator
from typing import Any

import mxnet as mx
import pytest
from mxnet import autograd, gluon

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
