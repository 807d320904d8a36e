"""A script's learning rate schedulers give an elastic loop the rates of a plain one."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LinearLR, OneCycleLR  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    EPOCHS,
    SCHEDULES,
    SEED,
    STEPS,
    both,
    check_same,
    data,
    linear,
    moved,
    network,
    sgd,
    step,
)
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("schedule", "each_step"), SCHEDULES)
def test_schedules(schedule: Callable[[Any], Any], each_step: bool) -> None:
    expected, model, _ = both(schedule=schedule, each_step=each_step)
    check_same(expected, model)


def rprop(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Rprop(model.parameters(), lr=0.01)


def test_a_warm_up_of_rprop_that_begins_at_0_trains() -> None:
    """Its steps were 0 for ever, where PyTorch's begin with the smallest."""
    expected, model, _ = both(linear, rprop, lambda own: LambdaLR(own, lambda count: min(count, 4) / 4), each_step=True)
    check_same(expected, model)
    moved(model, linear)


def test_a_warm_up_of_rprop_which_takes_its_first_rate_alone() -> None:
    expected, model, _ = both(linear, rprop, LinearLR, each_step=True)
    check_same(expected, model)
    with pytest.raises(AssertionError):
        check_same(both(linear, rprop)[1], model)


def test_momenta_that_nadam_has_not_had_from_the_start() -> None:
    def cycled(momenta: bool) -> Callable[[Any], Any]:
        return lambda own: OneCycleLR(own, 0.2, total_steps=EPOCHS * STEPS, cycle_momentum=momenta)

    def nadam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.NAdam(model.parameters(), lr=0.01)

    both(linear, nadam, cycled(False), each_step=True)
    with pytest.raises(ConfigurationError, match=r"group 0 of NAdam has betas\[0\]=.* now, and had 0.95 when the job"):
        both(linear, nadam, cycled(True), each_step=True)


@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_a_momentum_that_begins_later(dampening: float) -> None:
    def made(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=dampening)

    def late(own: Any) -> LambdaLR:
        own.param_groups[0]["momentum"] = 0.0
        return LambdaLR(own, lambda epoch: own.param_groups[0].update(momentum=0.9 * (epoch > 0)) or 0.5)

    if not dampening:
        expected, model, _ = both(linear, made, late)
        check_same(expected, model)
    else:
        with pytest.raises(ConfigurationError, match=r"group 0 of SGD has momentum=0\.9 now, and had none when the"):
            both(linear, made, late)


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


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the order, and of epochs that are told
@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("first", [0, 2 * STEPS + 1])
def test_a_schedule_may_be_called_before_an_epochs_batches(first: int, is_told: bool) -> None:
    """As scripts from before PyTorch 1.1 do."""
    with lone_job(SEED, first):
        model = network()
        optimizer, found = elastic.Optimizer(model, sgd(model)), []
        scheduler = ExponentialLR(optimizer, 0.5)
        for epoch in elastic.epochs(EPOCHS):
            scheduler.step(*[epoch] * is_told)
            for batch in elastic.DataLoader(data(), BATCH):
                step(model, optimizer, batch)
                found.append(optimizer.param_groups[0]["lr"])
    rates = [0.1 * 0.5 ** (epoch + (not is_told)) for epoch in range(EPOCHS) for _ in range(STEPS)]
    assert found[1:] == rates[first:]  # after the rehearsal


def test_a_batch_may_call_optimizer_and_schedule_more_than_once() -> None:
    """As where the same samples are trained on several times."""

    def scheduled(model: Any) -> Any:
        own = sgd(model)
        model.schedule = ExponentialLR(own, 0.9)
        return own

    def body(model: Any, optimizer: Any, batch: Any) -> None:
        for _ in range(2):
            step(model, optimizer, batch)
            model.schedule.step()

    expected, model, servers = both(optimizer=scheduled, body=body)
    check_same(expected, model)
    assert len(servers.exchanges) == 2 * EPOCHS * STEPS


@pytest.mark.parametrize("first", [0, 2, STEPS + 2])
def test_a_warm_up_by_the_number_of_the_step(first: int) -> None:
    """A worker that begins behind it had the rate of the rehearsal, which runs as the job's first step, for good."""
    with lone_job(SEED, first):
        model = network()
        optimizer, found = elastic.Optimizer(model, sgd(model)), []
        group, loader = optimizer.param_groups[0], elastic.DataLoader(data(), BATCH)
        for _epoch in elastic.epochs(EPOCHS):
            for batch in loader:
                if loader.step < 3:
                    group["lr"] = 0.1 * (loader.step + 1) / 4
                elif loader.step == 3:
                    group["lr"] = 0.1
                step(model, optimizer, batch)
                found.append(group["lr"])
    rates = [0.025, 0.05, 0.1 * 3 / 4, *[0.1] * (EPOCHS * STEPS - 3)]
    assert found == [0.025, *rates[first:]]
