"""Scripts of a job without servers, of one worker: they train as plain PyTorch does, or are told what to write."""

from contextlib import suppress
from itertools import count

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from tests.elastic_ps.torch.allreduce.lone_group import lone_group  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    STEPS,
    batches,
    check_same,
    data,
    left_once,
    network,
    sgd,
    step,
)

pytestmark = pytest.mark.timeout(120)


def trained(optimizer=sgd, body=step):
    """The model that a script trains for two epochs."""
    with lone_group():
        model = network()
        wrapped = elastic.Optimizer(model, optimizer(model))
        loader = elastic.DataLoader(data(), BATCH)
        for _ in elastic.epochs(2):
            for batch in loader:
                body(model, wrapped, batch)
    return model


def trained_plain(optimizer=sgd, body=step):
    model = network()
    own = optimizer(model)
    for epoch in range(2):
        for batch in batches(data(), epoch, shuffle=False):
            body(model, own, batch)
    return model


def test_a_step_in_inference_mode():
    def body(model, optimizer, batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        with torch.inference_mode():
            optimizer.step()

    check_same(trained_plain(body=body), trained(body=body))


def test_a_script_may_have_a_default_device_of_its_own():
    """It is none on which anything can be computed here, as that of a GPU is none for what gloo sends."""

    def body(model, optimizer, batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        with torch.device("meta"):
            optimizer.step()

    check_same(trained_plain(), trained(body=body))


def test_hooks_of_the_scripts_own_optimizer_are_called():
    def hooked(model):
        optimizer = sgd(model)
        optimizer.register_step_pre_hook(lambda *_: clipped(model))
        return optimizer

    def clipped(model):
        nn.utils.clip_grad_value_(model.parameters(), 0.01)

    check_same(trained_plain(hooked), trained(hooked))


def test_flags_may_change_while_it_trains():
    def body(model, optimizer, batch):
        optimizer.param_groups[0]["maximize"] = len(batch[1]) < BATCH  # in the last step of an epoch
        step(model, optimizer, batch)

    check_same(trained_plain(body=body), trained(body=body))


def test_a_batch_that_is_left_comes_again_as_if_it_had_not_come():
    numbers = count()
    with lone_group():
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        loader = elastic.DataLoader(data(), BATCH)
        for _ in elastic.epochs(2):
            with suppress(KeyError):
                for batch in loader:
                    left_once(model, optimizer, batch, next(numbers))
    check_same(trained_plain(), model)
    assert next(numbers) == 2 * STEPS + 2  # the rehearsal, and the one that was left


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (torch.optim.LBFGS, r"LBFGS.step\(closure\) calls the loss, .*: take an optimizer that updates by the grad"),
        (torch.optim.SparseAdam, "SparseAdam takes sparse gradients alone, .*: take Adam"),
    ],
)
def test_an_optimizer_that_needs_more_than_dense_gradients(kind, words):
    with pytest.raises(ConfigurationError, match=words):
        trained(lambda model: kind(model.parameters()))
