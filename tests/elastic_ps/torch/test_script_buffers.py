"""Buffers that no batch changes are the script's own to set, by the epoch say; the job gives them a first value."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.torch.arrays import ModelArray  # noqa: E402
from elastic_ps.torch.before_rehearsal import BuffersBefore  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    SEED,
    STEPS,
    both,
    check_same,
    data,
    network,
    sgd,
    step,
)
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402


def with_buffers() -> nn.Module:
    model = network()
    model.register_buffer("tau", torch.ones(1))
    model.register_buffer("noise", torch.full((2,), 3.0))
    return model


@pytest.mark.slow
def test_a_batch_that_comes_again_leaves_what_the_script_has_set() -> None:
    """It went back to the job's first value, in all workers that had outlived another."""
    with lone_job(SEED):
        model = with_buffers()
        optimizer, found = elastic.Optimizer(model, sgd(model)), []
        loader = elastic.DataLoader(data(), BATCH)
        for epoch in elastic.epochs(2):
            model.tau.fill_(0.5 ** (epoch + 1))
            for number, batch in enumerate(loader):
                if epoch and number == 1:
                    break  # before its step, which comes again
                step(model, optimizer, batch)
            for batch in loader if epoch else ():
                step(model, optimizer, batch)
                found.append(float(model.tau))
    assert found == [0.25] * (STEPS - 1)


@pytest.mark.slow
def test_who_joins_has_the_jobs_buffers_but_for_those_that_its_script_has_set() -> None:
    with lone_job(SEED, STEPS + 1) as (job, _):
        model = with_buffers()
        optimizer, found = elastic.Optimizer(model, sgd(model)), []
        loader = elastic.DataLoader(data(), BATCH)
        for epoch in elastic.epochs(3):
            model.tau.fill_(0.5 ** (epoch + 1))
            for batch in loader:
                step(model, optimizer, batch)
                if not job.rehearsed:
                    (store,) = job._stores
                    for key in ("s:tau", "s:noise"):  # the chief's first ones
                        store._first[key] = store._first[key] + 4  # type: ignore[attr-defined]
                found.append((epoch, float(model.tau), model.noise.tolist()))
    assert found[0] == (0, 0.5, [3.0, 3.0]), "its rehearsal"
    assert {(epoch, tau) for epoch, tau, _ in found[1:]} == {(1, 0.25), (2, 0.125)}
    assert all(noise == [7.0, 7.0] for _, _, noise in found[1:])


def test_what_is_set_before_the_first_batch_is_found() -> None:
    model = with_buffers()
    model.register_buffer("mask", torch.zeros(3))
    known = BuffersBefore(model)
    arrays: dict[str, Any] = {f"s:{name}": ModelArray(model, name) for name in ("tau", "noise", "mask")}
    model.double()  # moves all of them
    model.load_state_dict(model.state_dict())
    assert known.changed(arrays) == set()
    model.tau.fill_(0.5)
    model.mask = torch.ones(3)
    model.register_buffer("late", torch.zeros(1))
    assert known.changed(arrays | {"s:late": ModelArray(model, "late")}) == {"s:tau", "s:mask"}


def test_a_buffer_of_inference_mode_may_be_there() -> None:
    model = network()
    with torch.inference_mode():
        model.register_buffer("table", torch.zeros(2))
    assert BuffersBefore(model).changed({"s:table": ModelArray(model, "table")}) == set()


class Cached(nn.Module):
    """It makes a table anew where a batch is larger than all before, as rotary embeddings do for longer texts."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.largest = network(), 1
        self.register_buffer("table", torch.ones(6), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if len(images) > self.largest:
            self.register_buffer("table", torch.full((6,), 0.5), persistent=False)
            self.largest = len(images)
        return self.body(images * self.table)


class Chosen(nn.Module):
    """It has one table or another, by the batch: the first batch's is not the one that it begins with."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.whole, self.part = network(), torch.full((6,), 0.5), torch.ones(6)
        self.register_buffer("table", self.part, persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.register_buffer("table", self.whole if len(images) == BATCH else self.part, persistent=False)
        return self.body(images * self.table)


@pytest.mark.slow
@pytest.mark.parametrize("without_servers", [False, True])
@pytest.mark.parametrize("make", [Cached, Chosen])
def test_what_a_module_caches_is_its_own(without_servers: bool, make: Callable[[], Any]) -> None:
    """It was taken back behind the rehearsal, and numbers of Python's beside it were not."""
    expected, model, _ = both(make=make, shuffle=False, without_servers=without_servers)
    check_same(expected, model)
    assert torch.equal(expected.get_buffer("table"), model.get_buffer("table"))
