"""A loop ends at the number of a step: in all workers at the same one, whatever has been made again before."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.torch.allreduce.exchange import GroupExchange  # noqa: E402
from tests.elastic_ps.torch.allreduce.lone_group import lone_group  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    EPOCHS,
    SEED,
    STEPS,
    batches,
    check_same,
    data,
    network,
    sgd,
    step,
)
from tests.elastic_ps.torch.lone_job import RuleServers, lone_job  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def without_servers() -> AbstractContextManager[Any]:
    return lone_group()


def with_servers() -> AbstractContextManager[Any]:
    return lone_job(SEED)


@contextmanager
def with_a_death(made_in: Any, number: int | None) -> Iterator[None]:
    """Let the step of a number be made again once, as if another worker had died in it; None: none is.

    Args:
        made_in: the class that makes steps.
        number: of the step.
    """
    run, calls = made_in.run, []

    def run_or_not(self: Any, *args: Any) -> bool:
        calls.append(None)
        return False if len(calls) - 1 == number else run(self, *args)

    with patch.object(made_in, "run", run_or_not):
        yield


@pytest.mark.parametrize(("job", "made_in"), [(with_servers, RuleServers), (without_servers, GroupExchange)])
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("most", [3, STEPS, STEPS + 2])
def test_a_loop_ends_at_the_number_of_a_step(job: Any, made_in: Any, dies: bool, most: int) -> None:
    expected, told = network(), []
    own = sgd(expected)
    every = [batch for epoch in range(EPOCHS) for batch in batches(data(), epoch, shuffle=False)]
    for batch in every[:most]:
        step(expected, own, batch)
    with job(), with_a_death(made_in, most - 1 if dies else None):
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        loader = elastic.DataLoader(data(), BATCH)
        for _epoch in elastic.epochs(EPOCHS):
            for batch in loader:
                if loader.step == most:
                    break
                step(model, optimizer, batch)
                told.append(loader.step)
            if loader.step == most:
                break
    check_same(expected, model)
    assert told == [0, *range(most), *([most - 1] if dies else [])]


@pytest.mark.parametrize("job", [with_servers, without_servers])
def test_an_epoch_that_is_left_by_break_comes_again(job: Any) -> None:
    with job():
        model, epochs = network(), []
        optimizer = elastic.Optimizer(model, sgd(model))
        loader = elastic.DataLoader(data(), BATCH)
        for epoch in elastic.epochs(2):
            epochs.append(epoch)
            for batch in loader:
                step(model, optimizer, batch)
                if loader.step + 1 >= 2:
                    break
    assert epochs == [0] * (STEPS - 1) + [1] * STEPS
