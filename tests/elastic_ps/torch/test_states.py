"""States of optimizers have PyTorch's format, and are loaded as PyTorch loads them."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import LinearLR  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.states import from_torch  # noqa: E402
from tests.elastic_ps.optimizers.pytorch.roots import use_exact_roots  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    SEED,
    batches,
    both,
    check_same,
    data,
    linear,
    network,
    sgd,
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


def states_after_an_epoch(make: Any) -> dict[str, Any]:
    """What an optimizer of `linear` saves behind an epoch of plain PyTorch, with another rate."""
    model = linear()
    optimizer = make(model)
    for batch in batches(data(), 0, False):
        step(model, optimizer, batch)
    saved: dict[str, Any] = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["lr"] = 0.2
    return saved


def test_a_schedule_is_of_the_groups_that_the_wrapped_optimizer_has_loaded() -> None:
    saved = states_after_an_epoch(sgd)

    def schedule(optimizer: Any) -> LinearLR:
        getattr(optimizer, "wrapped", optimizer).load_state_dict(copy.deepcopy(saved))
        return LinearLR(optimizer, 0.1, 1, 8)

    expected, model, _ = both(linear, schedule=schedule, each_step=True)
    check_same(expected, model)
    with pytest.raises(AssertionError):
        check_same(both(linear, schedule=lambda own: LinearLR(own, 0.1, 1, 8), each_step=True)[1], model)


def load_in_last_batches(saved: dict[str, Any], words: str, wrapped: bool = False) -> None:
    """A loop that loads states which are refused, and trains on as plain PyTorch does without them."""

    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        if len(batch[0]) < BATCH and isinstance(optimizer, elastic.Optimizer):  # the last of each epoch
            with pytest.raises(ConfigurationError, match=words):
                (optimizer.wrapped if wrapped else optimizer).load_state_dict(saved)
            refused.append(len(batch[0]))
        step(model, optimizer, batch)

    refused: list[int] = []
    expected, model, _ = both(linear, body=body)
    check_same(expected, model)
    assert refused


def test_states_of_another_optimizer_change_nothing() -> None:
    saved = states_after_an_epoch(lambda model: torch.optim.Adam(model.parameters()))
    load_in_last_batches(saved, "the groups to load have no dampening, so they are not those of an optimizer SGD")


def test_states_that_the_servers_refuse_change_nothing() -> None:
    saved = states_after_an_epoch(sgd)
    saved["state"][0]["another"] = saved["state"][0]["momentum_buffer"]
    load_in_last_batches(saved, "another")


def test_states_that_the_wrapped_optimizer_alone_would_load() -> None:
    load_in_last_batches(states_after_an_epoch(sgd), "the servers have its states, and would go on", wrapped=True)


def test_a_group_of_rmsprop_without_momentum_has_zeros_for_it() -> None:
    """PyTorch keeps none there; servers have one rule for all groups, and refused what they had not saved."""
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(3, 1, bias=False)
    groups = [{"params": first.parameters(), "momentum": 0.9}, {"params": second.parameters()}]
    optimizer = torch.optim.RMSprop(groups, lr=0.1)
    for module in (first, second):
        module.weight.grad = torch.ones_like(module.weight)
    optimizer.step()
    found = from_torch(optimizer, {first.weight: "s:first", second.weight: "s:second"})
    assert found["s:first"].keys() == found["s:second"].keys() == {"count", "square_avg", "momentum_buffer"}
    assert found["s:first"]["momentum_buffer"].any()
    assert found["s:second"]["momentum_buffer"].tolist() == [[0.0, 0.0, 0.0]]
