"""Scripts of a job without servers, of one worker: they train as plain PyTorch does, or are told what to write."""

from contextlib import suppress
from itertools import count
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.core.model import Model, Tensor  # noqa: E402
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import ReplicaBlocks  # noqa: E402
from elastic_ps.torch.allreduce.optimizer import spec_of  # noqa: E402
from elastic_ps.torch.allreduce.replica.state_bytes import pack, unpack  # noqa: E402
from tests.elastic_ps.torch.allreduce.checkpoints.test_replica_blocks import saved  # noqa: E402
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


def test_models_that_take_turns_are_sent_to_servers():
    """The advice to make one optimizer of both had a GAN's generator trained by the discriminator's loss."""
    with lone_group():
        models = [network(), network()]
        both = [elastic.Optimizer(model, sgd(model)) for model in models]
        next(elastic.epochs(1))
        with pytest.raises(ConfigurationError, match=r"where they take turns \(a GAN\), train with servers"):
            next(iter(elastic.DataLoader(data(), BATCH)))
        del both


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


def joining(job, take):
    """Return what lets the lone worker take over, as one that joins, a replica whose buffers are larger by 4."""

    def become_member():
        replica = job._exchange._replica
        with torch.no_grad():
            buffers = [array.tensor for key, array in job._store.arrays.items() if key in ("s:tau", "s:noise")]
            for buffer in buffers:
                buffer.add_(4)
            given = take(replica, None)
            for buffer in buffers:
                buffer.sub_(4)
        take(replica, given)

    return become_member


def by_a_snapshot(replica, given):
    return pack(replica, {}) if given is None else unpack(replica, given)


def by_a_checkpoint(replica, given):
    tensors = tuple(
        Tensor(0, key, array.shape, array.dtype, auxiliary=key in replica._statistic_slots)
        for key, array in replica.arrays.items()
    )
    spec = spec_of(replica.optimizer, {replica.arrays[key].tensor: key for key in replica.parameter_numbers})
    blocks = ReplicaBlocks(replica, Model(tensors, 128), spec)
    return saved(blocks)[0] if given is None else blocks.install(given)


@pytest.mark.parametrize("take", [by_a_snapshot, by_a_checkpoint])
def test_who_joins_has_the_jobs_buffers_but_for_those_that_its_script_has_set(take):
    found = []
    with lone_group() as job:
        model = network()
        model.register_buffer("tau", torch.ones(1))
        model.register_buffer("noise", torch.full((2,), 3.0))
        optimizer = elastic.Optimizer(model, sgd(model))
        loader = elastic.DataLoader(data(), BATCH)
        with patch.object(job, "_become_member", joining(job, take)):
            for epoch in elastic.epochs(2):
                model.tau.fill_(0.5 ** (epoch + 1))
                for batch in loader:
                    step(model, optimizer, batch)
                    found.append((epoch, float(model.tau), model.noise.tolist()))
    assert {(epoch, tau) for epoch, tau, _ in found} == {(0, 0.5), (1, 0.25)}
    assert [noise for _, _, noise in found] == [[3.0, 3.0]] + [[7.0, 7.0]] * 2 * STEPS, "behind the rehearsal"


@pytest.mark.parametrize("take", [by_a_snapshot, by_a_checkpoint])
@pytest.mark.parametrize("caches", [False, True])
def test_who_joins_has_no_buffers_that_others_have_cached(take, caches):
    with lone_group() as job:
        model = network()
        model.register_buffer("noise", torch.full((2,), 3.0), persistent=False)
        optimizer = elastic.Optimizer(model, sgd(model))
        with patch.object(job, "_become_member", joining(job, take)):
            for _ in elastic.epochs(1):
                for batch in elastic.DataLoader(data(), BATCH):
                    if caches and not job.rehearsed:
                        model.noise = torch.ones(2)
                    step(model, optimizer, batch)
                    assert model.noise.tolist() == [1.0 if caches else 3.0] * 2


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
