"""A loop of PyTorch runs twice, plain and in a job of one worker: the weights are the same, to the bit."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LinearLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)
from torch.utils.data import TensorDataset

import elastic_ps.torch as elastic
from elastic_ps.core.data_order import indices, permutation
from tests.elastic_ps.torch.allreduce.lone_group import lone_group
from tests.elastic_ps.torch.lone_job import lone_job

SAMPLES, BATCH, EPOCHS, SEED = 50, 16, 3, 5
STEPS = -(-SAMPLES // BATCH)

Loop = Callable[[Any, Any, Any], None]

SCHEDULES: list[tuple[Callable[[Any], Any], bool]] = [
    (lambda own: StepLR(own, 1, 0.5), False),
    (lambda own: StepLR(own, 3, 0.5), True),
    (lambda own: OneCycleLR(own, 0.2, total_steps=EPOCHS * STEPS), True),
    (lambda own: SequentialLR(own, [LinearLR(own), CosineAnnealingLR(own, 9)], [4]), True),
    (lambda own: ChainedScheduler([LinearLR(own), StepLR(own, 2)]), False),
    (lambda own: CosineAnnealingWarmRestarts(own, 4), True),
    (lambda own: CosineAnnealingWarmRestarts(own, 2), False),
]
"""Learning rate schedulers, and whether a script calls them in each step."""


def data(shape: tuple[int, ...] = (6,)) -> TensorDataset:
    random = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(SAMPLES, *shape, generator=random), torch.randint(3, (SAMPLES,), generator=random))


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))


def linear() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 3))


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
    without_servers: bool = False,
    **settings: Any,
) -> tuple[nn.Module, nn.Module, Any]:
    """The model that a plain loop trains, the one that an elastic loop does, and the servers of the latter, or None."""
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
    servers = None
    with ExitStack() as job:
        if without_servers:
            job.enter_context(lone_group())
        else:
            _, servers = job.enter_context(lone_job(SEED))
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


def left_once(model: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    """A body that raises in the fifth batch, behind its backward pass, and calls zero_grad() behind its steps.

    Args:
        model: that it trains.
        optimizer: of it.
        batch: inputs and labels.
        number: of the batch, those that come once more with it.

    Raises:
        KeyError: in the fifth.
    """
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    if number == 4:
        raise KeyError
    optimizer.step()
    optimizer.zero_grad()


def check_same(expected: nn.Module, model: nn.Module) -> None:
    found = model.state_dict()
    for name, values in expected.state_dict().items():
        assert torch.equal(found[name], values), name


def moved(model: nn.Module, make: Callable[[], nn.Module] = network) -> None:
    before, after = make().state_dict(), model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
