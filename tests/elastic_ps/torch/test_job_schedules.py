"""A script's learning rate schedulers give an elastic loop the rates of a plain one."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.optim.lr_scheduler import ExponentialLR  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from tests.elastic_ps.torch.beside_plain import (  # noqa: E402
    BATCH,
    EPOCHS,
    SCHEDULES,
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

pytestmark = pytest.mark.slow


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
