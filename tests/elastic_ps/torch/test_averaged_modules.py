"""Modules that a script changes by itself, as a moving average of weights, are the job's too."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.before_rehearsal import BeforeRehearsal  # noqa: E402
from elastic_ps.torch.model import tensors_of  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    SEED,
    both,
    check_same,
    data,
    network,
    sgd,
    step,
)
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.slow


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


def test_so_it_is_without_servers_where_the_rehearsal_was_one_update_more() -> None:
    expected, model, _ = both(make=Averaging, shuffle=False, without_servers=True)
    check_same(expected, model)


def test_parameters_are_copied_where_they_have_room() -> None:
    """Those of a large model that is fine-tuned would need as much again as it has."""
    model = nn.ModuleDict({"frozen": nn.Linear(3, 3), "head": nn.Linear(3, 3), "more": nn.Linear(3, 3)})
    arrays = dict(tensors_of(model, ()))
    for trained, is_undone in (("s:head.", False), ("s:", True)):
        keys = {key for key in arrays if key.startswith(trained) and "frozen" not in key}
        before, first = BeforeRehearsal(arrays, keys, copies=True), model["frozen"].weight.clone()
        model["frozen"].weight.data.add_(1)
        before.undo()
        assert torch.equal(model["frozen"].weight, first) is is_undone


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
