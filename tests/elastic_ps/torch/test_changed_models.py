"""A model that a script changes behind the optimizer is refused: the job's values would go where nobody reads them."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from tests.elastic_ps.torch.beside_plain import BATCH, SEED, data, sgd, step  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.timeout(120)

Change = Callable[[Any], Any]


def pruned(model: Any) -> None:
    prune.l1_unstructured(model[0], "weight", amount=0.3)


def tied(model: Any) -> None:
    model[1].weight = model[0].weight


def loaded(model: Any) -> None:
    model.load_state_dict({name: values.clone() for name, values in model.state_dict().items()}, assign=True)


def train(change: Change, first: int, back: Change = lambda model: None) -> None:
    """A loop that changes its model before batch `first`, or before the loop where that is below 0."""
    with lone_job(SEED):
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        optimizer = elastic.Optimizer(model, sgd(model))
        if first < 0:
            change(model)
        next(elastic.epochs(1))
        for number, (images, labels) in enumerate(elastic.DataLoader(data(), BATCH)):
            if number == first:
                change(model)
                back(model)
            step(model, optimizer, (images.to(model[0].bias.dtype), labels))


@pytest.mark.parametrize("first", [-1, 0, 2])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (pruned, "parameter 0.weight is another tensor, or elsewhere"),
        (lambda model: parametrizations.weight_norm(model[0]), "parameter 0.weight is another tensor"),
        (tied, "parameter 1.weight is another tensor, or elsewhere"),
        (loaded, "parameter 0.weight is another tensor"),
    ],
)
def test_a_parameter_that_is_elsewhere(change: Change, words: str, first: int) -> None:
    with pytest.raises(ConfigurationError, match=words):
        train(change, first)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_a_parameter_of_another_type(kind: torch.dtype) -> None:
    def change(model: Any) -> None:
        model.to(kind)

    with pytest.raises(ConfigurationError, match=rf"0.weight is {kind} now, and was torch.float32 when the job began"):
        train(change, 2)
    train(change, 2, back=lambda model: model.float())  # as for an evaluation between


def moved(optimizer: Any) -> None:
    groups = optimizer.param_groups
    groups[1]["params"].append(groups[0]["params"].pop())


def turned_round(optimizer: Any) -> None:
    optimizer.param_groups.reverse()


@pytest.mark.parametrize("change", [moved, turned_round])
def test_a_parameter_in_another_group(change: Change) -> None:
    with lone_job(SEED):
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        groups = [{"params": layer.parameters(), "lr": 0.1 * number} for number, layer in enumerate(model, 1)]
        optimizer = elastic.Optimizer(model, torch.optim.SGD(groups))
        next(elastic.epochs(1))
        batches = iter(elastic.DataLoader(data(), BATCH))
        step(model, optimizer, next(batches))
        batch = next(batches)
        change(optimizer)
        with pytest.raises(ConfigurationError, match="in another of the optimizer's groups than when"):
            step(model, optimizer, batch)


def shared_whole(model: Any) -> None:
    model[1].weight.data = model[0].weight.data


def shared_in_part(model: Any) -> None:
    model[1].bias.data = model[0].weight.data[2]


def shared_with_a_buffer(model: Any) -> None:
    model.register_buffer("bias", model[1].bias.detach())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (shared_whole, "1.weight and 0.weight share memory"),
        (shared_in_part, "1.bias and 0.weight share memory"),
        (shared_with_a_buffer, "bias and .*bias share memory"),
    ],
)
def test_a_parameter_whose_memory_another_tensor_has(change: Change, words: str) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    change(model)
    with pytest.raises(ConfigurationError, match=words):
        elastic.Optimizer(model, sgd(model))


def test_tensors_side_by_side_in_one_piece_of_memory_or_frozen_in_it() -> None:
    model, memory = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), torch.randn(84)
    parts = torch.split(memory, [36, 6, 36, 6])
    for parameter, part in zip(model.parameters(), parts, strict=True):
        parameter.data = part.view(parameter.shape)
    model.register_buffer("one", torch.ones(4))
    model.register_buffer("other", model.one[:2])
    elastic.Optimizer(model, sgd(model))
