"""A small script of PyTorch, whose optimizer and loop tests may change."""

from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import elastic_ps.torch as elastic
from tests.elastic_ps.torch.lone_job import lone_job

DATA = TensorDataset(torch.randn(12, 4), torch.randn(12, 2))


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2))


def loss(net: nn.Module, batch: Any) -> torch.Tensor:
    return ((net(batch[0]) - batch[1]) ** 2).mean()


class Around(torch.optim.Optimizer):
    """It wraps an optimizer, as that of accelerate does, and shows what the other has as its own."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.optimizer.defaults

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.optimizer.step(closure)


def wrapped(kind: Any, **arguments: Any) -> elastic.Optimizer:
    net = model()
    return elastic.Optimizer(net, kind(net.parameters(), **arguments))


def train(
    body: Any, kind: Any = torch.optim.SGD, schedule: Any = None, overlap: bool = False, **arguments: Any
) -> None:
    """A loop whose body is called with (model, optimizer, batch, number)."""
    with lone_job():
        net = model()
        optimizer = elastic.Optimizer(net, kind(net.parameters(), **{"lr": 0.1, **arguments}), overlap=overlap)
        scheduler = schedule(optimizer) if schedule else None
        loader = elastic.DataLoader(DATA, 4)
        for _epoch in elastic.epochs(2):
            for number, batch in enumerate(loader):
                body(net, optimizer, batch, number)
        del scheduler
