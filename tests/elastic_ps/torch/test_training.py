"""A loop of PyTorch, plain and elastic: the same bits where one worker trains."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import (  # noqa: E402
    ChainedScheduler,
    CosineAnnealingLR,
    LinearLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)
from torch.utils.data import TensorDataset  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.data_order import indices, permutation  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.before_rehearsal import BeforeRehearsal  # noqa: E402
from elastic_ps.torch.model import tensors_of  # noqa: E402
from tests.elastic_ps.optimizers.pytorch.roots import use_exact_roots  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.slow

SAMPLES, BATCH, EPOCHS, SEED = 50, 16, 3, 5
STEPS = -(-SAMPLES // BATCH)

Loop = Callable[[Any, Any, Any], None]


def data(shape: tuple[int, ...] = (6,)) -> TensorDataset:
    random = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(SAMPLES, *shape, generator=random), torch.randint(3, (SAMPLES,), generator=random))


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))


def linear() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 3))


SCHEDULES: list[tuple[Callable[[Any], Any], bool]] = [
    (lambda own: StepLR(own, 1, 0.5), False),
    (lambda own: StepLR(own, 3, 0.5), True),
    (lambda own: OneCycleLR(own, 0.2, total_steps=EPOCHS * STEPS), True),
    (lambda own: SequentialLR(own, [LinearLR(own), CosineAnnealingLR(own, 9)], [4]), True),
    (lambda own: ChainedScheduler([LinearLR(own), StepLR(own, 2)]), False),
]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def step(model: nn.Module, optimizer: Any, batch: Any) -> None:
    images, labels = batch
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def batches(dataset: TensorDataset, epoch: int, shuffle: bool) -> Any:
    """The batches of one epoch of a job of one worker."""
    order = permutation(SEED, epoch, SAMPLES) if shuffle else np.arange(SAMPLES)
    for number in range(STEPS):
        chosen = indices(order, range(number * BATCH, min((number + 1) * BATCH, SAMPLES)))
        yield dataset[torch.from_numpy(chosen)]


def both(
    make: Callable[[], nn.Module] = network,
    optimizer: Callable[[nn.Module], Any] = sgd,
    schedule: Callable[[Any], Any] | None = None,
    each_step: bool = False,
    body: Loop = step,
    shuffle: bool = True,
    dataset: TensorDataset | None = None,
    **settings: Any,
) -> tuple[nn.Module, nn.Module, Any]:
    """The model that a plain loop trains, the one that an elastic loop does, and the servers of the latter."""
    dataset = dataset or data()
    expected = make()
    own = optimizer(expected)
    scheduler = schedule(own) if schedule else None
    for epoch in range(EPOCHS):
        for batch in batches(dataset, epoch, shuffle):
            body(expected, own, batch)
            if scheduler and each_step:
                scheduler.step()
        if scheduler and not each_step:
            scheduler.step()
    with lone_job(SEED) as (_, servers):
        model = make()
        wrapped = elastic.Optimizer(model, optimizer(model), **settings)
        scheduler = schedule(wrapped) if schedule else None
        loader = elastic.DataLoader(dataset, BATCH, shuffle=shuffle)
        for _epoch in elastic.epochs(EPOCHS):
            for batch in loader:
                body(model, wrapped, batch)
                if scheduler and each_step:
                    scheduler.step()
            if scheduler and not each_step:
                scheduler.step()
    return expected, model, servers


def check_same(expected: nn.Module, model: nn.Module) -> None:
    found = model.state_dict()
    for name, values in expected.state_dict().items():
        assert torch.equal(found[name], values), name


def moved(model: nn.Module, make: Callable[[], nn.Module] = network) -> None:
    before, after = make().state_dict(), model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


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


def halves(model: nn.Module) -> torch.optim.Optimizer:
    first, last = [*model[0].parameters(), *model[1].parameters()], list(model[3].parameters())
    return torch.optim.SGD([{"params": first, "lr": 0.01}, {"params": last, "weight_decay": 0.1}], lr=0.2, momentum=0.5)


def test_parameter_groups_travel_in_one_exchange() -> None:
    expected, model, servers = both(optimizer=halves, schedule=lambda own: StepLR(own, 1, 0.5))
    check_same(expected, model)
    assert len(servers.exchanges) == EPOCHS * STEPS


@pytest.mark.parametrize(("schedule", "each_step"), SCHEDULES)
def test_schedules(schedule: Callable[[Any], Any], each_step: bool) -> None:
    expected, model, _ = both(schedule=schedule, each_step=each_step)
    check_same(expected, model)


@pytest.mark.parametrize(("schedule", "each_step"), SCHEDULES)
def test_a_script_that_begins_later_has_the_jobs_schedule(schedule: Callable[[Any], Any], each_step: bool) -> None:
    alone = sgd(network())
    scheduler = schedule(alone)
    rates = []
    for _ in range(EPOCHS):
        for _ in range(STEPS):
            alone.step()
            rates.append([dict(group, params=0) for group in alone.param_groups])
            if each_step:
                scheduler.step()
        if not each_step:
            scheduler.step()
    first = STEPS + 2  # in the second epoch
    with lone_job(SEED, first):
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        scheduler = schedule(optimizer)
        found = []
        for _epoch in elastic.epochs(EPOCHS):
            for batch in elastic.DataLoader(data(), BATCH):
                step(model, optimizer, batch)
                found.append([dict(group, params=0) for group in optimizer.param_groups])
                if each_step:
                    scheduler.step()
            if not each_step:
                scheduler.step()
    assert found[1:] == rates[first:]  # after the rehearsal


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


@pytest.mark.parametrize(
    "kind", ["SGD", "Adam", "AdamW", "NAdam", "Adagrad", "RMSprop", "Adadelta", "Adamax", "RAdam", "Rprop", "ASGD"]
)
def test_states_have_pytorchs_format_and_go_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_roots(monkeypatch)

    def make(model: nn.Module) -> torch.optim.Optimizer:
        more = {"momentum": 0.9} if kind == "SGD" else {}
        return getattr(torch.optim, kind)(model.parameters(), lr=0.01, **more)

    whole, dataset = network(), data()
    own = make(whole)
    for epoch in range(2):
        for batch in batches(dataset, epoch, False):
            step(whole, own, batch)
    with lone_job(SEED):
        model = network()
        optimizer = elastic.Optimizer(model, make(model))
        for _epoch in elastic.epochs(1):
            for batch in elastic.DataLoader(dataset, BATCH):
                step(model, optimizer, batch)
        saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    plain = network()
    plain.load_state_dict(weights)
    gone_on = make(plain)
    gone_on.load_state_dict(saved)
    with lone_job(SEED):
        model = network()
        model.load_state_dict(weights)
        optimizer = elastic.Optimizer(model, make(model))
        optimizer.load_state_dict(saved)
        for _epoch in elastic.epochs(1):
            for batch in elastic.DataLoader(dataset, BATCH):
                step(model, optimizer, batch)
    for batch in batches(dataset, 1, False):
        step(plain, gone_on, batch)
    check_same(whole, model)
    check_same(whole, plain)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_a_state_dict_without_states_lets_them_begin_anew(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_roots(monkeypatch)

    def make(model: nn.Module) -> torch.optim.Optimizer:
        more = {"momentum": 0.9} if kind == "SGD" else {}
        return getattr(torch.optim, kind)(model.parameters(), lr=0.01, **more)

    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        if len(batch[0]) < BATCH:  # the last of each epoch
            optimizer.load_state_dict(fresh)
        step(model, optimizer, batch)

    fresh = make(network()).state_dict()
    expected, model, _ = both(optimizer=make, body=body)
    check_same(expected, model)
    with pytest.raises(AssertionError):
        check_same(both(optimizer=make)[1], model)


class Averaging(nn.Module):
    """Its `target` is a moving average of `online`, which each forward pass in training moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.target = network(), network()
        self.target.requires_grad_(False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for own, other in zip(self.target.parameters(), self.online.parameters(), strict=True):
            own.data = own.data * 0.9 + other.data * 0.1
        return self.online(images) + self.target(images)


@pytest.mark.parametrize("of", [lambda model: model, lambda model: model.online])
def test_a_target_network_is_the_jobs_too(of: Callable[[Any], nn.Module]) -> None:
    expected, model, servers = both(make=Averaging, optimizer=lambda model: sgd(of(model)))
    check_same(expected, model)
    assert {f"s:target.{name}" for name, _ in network().named_parameters()} <= set(servers.exchanges[0])


def test_a_worker_without_samples_in_a_step_keeps_its_target_network() -> None:
    with lone_job(SEED) as (job, _):
        model = Averaging()
        optimizer = elastic.Optimizer(model, sgd(model))
        for _epoch in elastic.epochs(1):
            for batch in elastic.DataLoader(data(), BATCH):
                step(model, optimizer, batch)
        before = copy.deepcopy(model)
        job._write_all_parameters()  # as behind a step that others make
        check_same(before, model)
        assert not torch.equal(model.target[0].weight, network()[0].weight)


def test_a_parameter_is_trained_or_changed_by_the_script() -> None:
    with lone_job(SEED):
        model = Averaging()
        optimizer = elastic.Optimizer(model, sgd(model))
        next(elastic.epochs(1))
        loader = iter(elastic.DataLoader(data(), BATCH))
        step(model, optimizer, next(loader))
        model.target.requires_grad_(True)
        batch = next(loader)
        with pytest.raises(ConfigurationError, match=r"parameter target.0.bias has a gradient, and in the first batch"):
            step(model, optimizer, batch)


def test_one_parameter_that_changes_tells_of_its_whole_frozen_module() -> None:
    model = nn.ModuleDict({"online": network(), "target": nn.ModuleDict({"body": network(), "head": nn.Linear(3, 1)})})
    model["other"] = nn.Linear(2, 2)
    arrays = dict(tensors_of(model, ()))
    before = BeforeRehearsal(arrays, {key for key in arrays if "online" in key})
    assert before.changed() == set()
    model["target"]["head"].bias.data.add_(1)  # which PyTorch does not count
    found = {key for key in arrays if key.startswith("s:target.") and "running" not in key and "batches" not in key}
    assert before.changed() == found
