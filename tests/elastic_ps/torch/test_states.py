"""States of optimizers have PyTorch's format, and are loaded as PyTorch loads them."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from tests.elastic_ps.optimizers.pytorch.roots import use_exact_roots  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    SEED,
    batches,
    both,
    check_same,
    data,
    network,
    step,
)
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.slow


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
