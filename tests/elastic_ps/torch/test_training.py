"""A loop of PyTorch, plain and elastic: the same bits where one worker trains."""

import copy
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import StepLR  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    EPOCHS,
    SAMPLES,
    SCHEDULES,
    SEED,
    STEPS,
    both,
    check_same,
    data,
    left_once,
    linear,
    moved,
    network,
    sgd,
    step,
)
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shuffle", [True, False])
def test_momentum_and_batch_norm(shuffle: bool) -> None:
    expected, model, servers = both(shuffle=shuffle)
    check_same(expected, model)
    moved(model)
    assert len(servers.exchanges) == EPOCHS * STEPS  # each one step


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_may_be_rounded(kind: str, overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_ps.worker.script.early_sends.PORTION_BYTES", 100)

    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        if not isinstance(optimizer, elastic.Optimizer):
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.copy_(parameter.grad.to(getattr(torch, kind)))
        optimizer.step()

    expected, model, servers = both(body=body, compression=kind, overlap=overlap)
    check_same(expected, model)
    with pytest.raises(AssertionError):
        check_same(both()[1], model)
    assert bool(servers.early) is overlap


def test_gradients_are_sent_while_the_backward_pass_makes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_ps.worker.script.early_sends.PORTION_BYTES", 100)
    schedule, each_step = SCHEDULES[2]  # whose rate of a step is known before the first gradient is sent
    expected, model, servers = both(schedule=schedule, each_step=each_step, overlap=True)
    check_same(expected, model)
    assert len(servers.exchanges) == EPOCHS * STEPS
    assert set(servers.exchanges[0]) == {f"s:{name}" for name in model.state_dict()}
    last, rest = ["s:3.bias", "s:3.weight"], ["s:0.bias", "s:0.weight", "s:1.bias", "s:1.weight"]
    assert servers.early[:1] == [last]
    assert sorted(key for keys in servers.early[1 : len(servers.early) // (EPOCHS * STEPS)] for key in keys) == rest


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_batch_that_is_left_behind_its_backward_pass_changes_nothing(
    goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of its gradients have been sent by then."""
    monkeypatch.setattr("elastic_ps.worker.script.early_sends.PORTION_BYTES", 100)
    schedule, _ = SCHEDULES[2]
    weights = []
    for overlap in (False, True):
        with lone_job(SEED) as (job, servers):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 4))
            optimizer = elastic.Optimizer(model, torch.optim.SGD(model.parameters(), 0.1, 0.9), overlap=overlap)
            scheduler, sampler, counts = schedule(optimizer), elastic.Sampler(range(8), 2), []
            for _epoch in elastic.epochs(2):
                for _ in sampler:
                    counts.append(len(servers.exchanges))
                    optimizer.zero_grad()
                    model(torch.ones(3, 12)).square().sum().backward()
                    if len(counts) == 4:
                        break
                    optimizer.step()
                    scheduler.step()
                if len(counts) == 4 and not goes_on:
                    break
            job.leave_step()
            assert len(servers.exchanges) == (8 if goes_on else 2)
            weights.append(list(model.parameters()))
            assert bool(servers.early) == overlap
    assert all(map(torch.equal, *weights))


def test_a_batch_that_is_left_comes_again_as_if_it_had_not_come() -> None:
    expected, numbers = both()[0], count()
    with lone_job(SEED) as (_, servers):
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        loader = elastic.DataLoader(data(), BATCH, shuffle=True)
        for _epoch in elastic.epochs(EPOCHS):
            with suppress(KeyError):
                for batch in loader:
                    left_once(model, optimizer, batch, next(numbers))
    check_same(expected, model)
    assert next(numbers) == EPOCHS * STEPS + 2  # the rehearsal, and the one that was left
    assert len(servers.exchanges) == EPOCHS * STEPS


def halves(model: nn.Module) -> torch.optim.Optimizer:
    first, last = [*model[0].parameters(), *model[1].parameters()], list(model[3].parameters())
    return torch.optim.SGD([{"params": first, "lr": 0.01}, {"params": last, "weight_decay": 0.1}], lr=0.2, momentum=0.5)


def test_a_loader_tells_the_number_of_the_jobs_step() -> None:
    """A script that counts batches counts the rehearsal, and those that come again."""
    seen, told = [], []
    with lone_job(SEED):
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        loader = elastic.DataLoader(data(), BATCH)
        for _epoch in elastic.epochs(2):
            with suppress(KeyError):
                for batch in loader:
                    seen.append(batch)
                    told.append(loader.step)
                    left_once(model, optimizer, batch, len(seen) - 1)
    assert told == [0, 0, 1, 2, 3, 3, *range(STEPS, 2 * STEPS)]


def test_parameter_groups_travel_in_one_exchange() -> None:
    expected, model, servers = both(optimizer=halves, schedule=lambda own: StepLR(own, 1, 0.5))
    check_same(expected, model)
    assert len(servers.exchanges) == EPOCHS * STEPS


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.encode, self.decode = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.decode.weight = self.encode.weight
        self.frozen, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.rarely = nn.Linear(6, 3)
        self.frozen.requires_grad_(False)
        self.register_buffer("constant", torch.full((6,), 1 / 3))
        self.register_buffer("mask", torch.ones(6, dtype=torch.bool))
        self.calls = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        hidden = self.decode(self.frozen(self.encode(images) * self.constant)) * self.mask
        return self.head(hidden) + (self.rarely(hidden) if len(images) != BATCH else 0)


def test_tied_frozen_and_rarely_used_parameters() -> None:
    expected, model, servers = both(make=Tied)
    check_same(expected, model)
    moved(model, Tied)
    whole = {"s:encode.weight", "s:head.weight", "s:head.bias"}
    rarely = {"s:rarely.weight", "s:rarely.bias"}
    pushed = [set(keys) for keys in servers.exchanges]
    assert pushed == [whole | (rarely if number % STEPS == STEPS - 1 else set()) for number in range(len(pushed))]


def test_gradients_may_be_set_to_zero_instead_of_none() -> None:
    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        model.zero_grad(set_to_none=False)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    expected, model, servers = both(make=Tied, body=body)
    check_same(expected, model)
    assert "s:rarely.weight" in servers.exchanges[-2]  # a gradient of zeros, since a batch has used it


def test_gradients_of_the_rehearsal_are_not_added_to() -> None:
    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    expected, model, _ = both(linear, body=body)
    check_same(expected, model)
    with pytest.raises(AssertionError):
        check_same(both(linear)[1], model)


def test_a_layer_may_thaw_later() -> None:
    def body(model: Any, optimizer: Any, batch: Any) -> None:
        model.frozen.requires_grad_(model.calls > STEPS + 1)
        step(model, optimizer, batch)

    with lone_job(SEED):
        model = Tied()
        before = copy.deepcopy(model.frozen.state_dict())
        optimizer = elastic.Optimizer(model, sgd(model))
        for _epoch in elastic.epochs(EPOCHS):
            for batch in elastic.DataLoader(data(), BATCH):
                body(model, optimizer, batch)
    assert not torch.equal(model.frozen.weight, before["weight"])


def test_a_batch_may_be_divided() -> None:
    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad()
        for part in range(2):
            loss = nn.functional.cross_entropy(model(images[part::2]), labels[part::2])
            (loss / 2).backward()
        optimizer.step()

    expected, model, _ = both(make=linear, body=body)
    check_same(expected, model)


def test_the_parts_of_a_batch_need_not_be_alike() -> None:
    """Each one's mean counts by its samples: it was told to call backward() for each, and no more."""

    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad()
        for few, theirs in zip(images.split(6), labels.split(6), strict=True):
            loss = nn.functional.cross_entropy(model(few), theirs)
            (loss * len(few) / len(images)).backward()
        optimizer.step()

    whole, model = both(linear)[0], both(linear, body=body)[1]
    for name, values in whole.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], values)
    moved(model, linear)


def test_bfloat16_by_autocast() -> None:
    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    check_same(*both(body=body)[:2])


def test_channels_last() -> None:
    def make() -> nn.Module:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(64, 3))
        return net.to(memory_format=torch.channels_last)

    expected, model, _ = both(make=make, dataset=data((2, 6, 6)))
    for name, values in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], values)
    moved(model, make)


def test_sparse_embeddings_push_their_rows() -> None:
    def make() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.EmbeddingBag(40, 5, sparse=True, mode="sum"), nn.Linear(5, 3))

    words = TensorDataset(torch.arange(SAMPLES * 2).reshape(SAMPLES, 2) % 40, data().tensors[1])
    expected, model, servers = both(
        make=make, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1), dataset=words, shuffle=False
    )
    check_same(expected, model)
    assert servers.rows["s:0.weight"] == sorted({word % 40 for word in range(96, 100)})


def test_batches_without_any_index_change_no_rows() -> None:
    class Bags(nn.Module):
        """Some batches have only empty bags."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.EmbeddingBag(40, 3, sparse=True, mode="sum")

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            if words[0, 0] % 16:
                return self.table(words)
            return self.table(words.flatten()[:0], torch.zeros(len(words), dtype=torch.int64))

    def make() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(Bags(), nn.Flatten())

    words = TensorDataset(torch.arange(SAMPLES * 2).reshape(SAMPLES, 2) % 40, data().tensors[1])
    expected, model, _ = both(
        make=make, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1), dataset=words, shuffle=False
    )
    check_same(expected, model)


def test_two_optimizers_of_one_model() -> None:
    def make(model: nn.Module) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[3].parameters(), lr=0.01)]

    with lone_job(SEED) as (_, servers):
        model = network()
        optimizers = [elastic.Optimizer(model, own) for own in make(model)]
        for _epoch in elastic.epochs(1):
            for images, labels in elastic.DataLoader(data(), BATCH):
                model.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                for optimizer in optimizers:
                    optimizer.step()
    assert [
        sorted(key for key in keys if "running" not in key and "batches" not in key) for keys in servers.exchanges
    ] == [
        ["s:0.bias", "s:0.weight"],
        ["s:3.bias", "s:3.weight"],
    ] * STEPS
    moved(model)
