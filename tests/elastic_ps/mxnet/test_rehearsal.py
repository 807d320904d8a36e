"""What a rehearsal's body sets in MXNet's objects, and learns of a Gluon network."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.data.sampler import Sampler
from tests.elastic_ps.worker.instant_job import elastic_job, sgd

pytestmark = pytest.mark.mxnet

BASE, SAMPLES, BATCH = 0.5, 8, 4


def network() -> gluon.nn.Dense:
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize(mx.init.One())
    return net


def train(net, trainer) -> None:
    with autograd.record():
        loss = net(mx.nd.ones((BATCH, 2)))
    loss.backward()
    trainer.step(BATCH)


@pytest.mark.parametrize("leaves", [False, True])
def test_what_its_body_sets_by_the_step_is_taken_back(leaves):
    """A joiner, whose first step is a later one, trained on with the warm-up's first rate."""
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": BASE}, kvstore="dist_elastic")
    rates = []
    with elastic_job(sgd):
        for _ in range(1 + leaves):
            for number, _ in enumerate(Sampler(SAMPLES, BATCH)):
                rates.append(trainer.learning_rate)
                if len(rates) == 1:
                    trainer.set_learning_rate(BASE / 5)
                train(net, trainer)
                if leaves and number == 0:
                    break
    assert rates == [BASE] * len(rates)
    assert len(rates) == (2 if leaves else 3)


def test_a_schedule_that_its_body_sets_is_taken_back_too():
    net, first = network(), mx.lr_scheduler.FactorScheduler(100, base_lr=BASE)
    arguments = {"learning_rate": BASE, "lr_scheduler": first}
    trainer = gluon.Trainer(net.collect_params(), "sgd", arguments, kvstore="dist_elastic")
    with elastic_job(sgd):
        for number, _ in enumerate(Sampler(SAMPLES, BATCH)):
            if number == 0:
                first.base_lr = BASE / 5
                trainer.optimizer.lr_scheduler = mx.lr_scheduler.FactorScheduler(100, base_lr=BASE / 3)
            else:
                assert trainer.optimizer.lr_scheduler is first
                assert trainer.learning_rate == BASE
            train(net, trainer)
    np.testing.assert_allclose(net.weight.data().asnumpy(), 1 - 2 * BASE)


def test_a_parameter_that_thaws_is_refused_with_what_to_do():
    net = network()
    net.bias.grad_req = "null"
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": BASE}, kvstore="dist_elastic")
    refused = r"key 0: it was not pushed.* In MXNet: its grad_req was 'null' then"
    with elastic_job(sgd):
        for number, _ in enumerate(Sampler(SAMPLES, BATCH)):
            if number < 2:
                train(net, trainer)
                continue
            net.bias.grad_req = "write"
            with pytest.raises(ConfigurationError, match=refused):
                train(net, trainer)


def test_what_has_a_trainer_of_its_own_keeps_still_as_the_refusal_says():
    net = network()
    still = gluon.Trainer([net.bias], "sgd", {"learning_rate": 0.0}, kvstore="dist_elastic")
    trainer = gluon.Trainer([net.weight], "sgd", {"learning_rate": BASE}, kvstore="dist_elastic")
    with elastic_job(sgd):
        for number, _ in enumerate(Sampler(SAMPLES, BATCH)):
            before = net.bias.data().asscalar()
            still.set_learning_rate(BASE if number == 2 else 0.0)
            with autograd.record():
                loss = net(mx.nd.ones((BATCH, 2)))
            loss.backward()
            for each in (still, trainer):
                each.step(BATCH)
            assert (net.bias.data().asscalar() != before) == (number == 2)
