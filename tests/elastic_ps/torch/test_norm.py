"""Clipping by the norm of all gradients, and GradScaler: as in one process."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import clip_grad_norm_  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from tests.elastic_ps.torch.beside_plain import BATCH, SEED, both, check_same, data, linear, moved, network, sgd  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.slow


def clipped(bound: float) -> Any:
    """A body that clips where it trains alone."""

    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        if not isinstance(optimizer, elastic.Optimizer):
            clip_grad_norm_(model.parameters(), bound)
        optimizer.step()

    return body


@pytest.mark.parametrize(("bound", "bites"), [(0.2, True), (1e6, False)])
def test_gradients_are_clipped_by_the_norm_of_all(bound: float, bites: bool) -> None:
    expected, model, servers = both(body=clipped(bound), max_norm=bound)
    for name, values in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], values, rtol=1e-5, atol=1e-6)
    moved(model)
    assert (servers.factors[0] < 1) is bites
    if not bites:
        check_same(expected, model)


def test_the_bound_may_change_while_it_trains() -> None:
    with lone_job(SEED) as (_, servers):
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        for _epoch in elastic.epochs(1):
            for batch in elastic.DataLoader(data(), BATCH):
                optimizer.max_norm = {0: 1e6, 1: 1e-3}.get(len(servers.factors))
                clipped(0)(model, optimizer, batch)
    assert servers.factors[0] == 1
    assert servers.factors[1] < 0.1
    assert len(servers.factors) == 2


@pytest.mark.parametrize("bound", [0, -1.0, float("nan"), float("inf")])
def test_a_bound_that_is_none(bound: float) -> None:
    model = network()
    with pytest.raises(ConfigurationError, match=r"max_norm=.*give a number above 0"):
        elastic.Optimizer(model, sgd(model), max_norm=bound)
    optimizer = elastic.Optimizer(model, sgd(model), max_norm=1.0)
    with pytest.raises(ConfigurationError, match=r"max_norm=.*give a number above 0"):
        optimizer.max_norm = bound
    assert optimizer.max_norm == 1.0
    optimizer.max_norm = None


def half(scaler: Any, unscale: bool, overflows: bool) -> Any:
    """A body in float16, some of whose batches overflow."""

    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        own = scaler[isinstance(optimizer, elastic.Optimizer)]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = nn.functional.cross_entropy(model(images), labels)
        if overflows and float(images[0, 0]) > 0.3:
            loss = loss * torch.inf
        own.scale(loss).backward()
        if unscale:
            own.unscale_(optimizer)
        own.step(optimizer)
        own.update()
        skips.append(getattr(optimizer, "skipped", None))

    skips: list[Any] = []
    body.skips = skips  # type: ignore[attr-defined]
    return body


@pytest.mark.parametrize("unscale", [True, False])
@pytest.mark.parametrize("overflows", [True, False])
def test_float16_with_a_scaler(unscale: bool, overflows: bool) -> None:
    body = half([torch.amp.GradScaler("cpu", 1024.0) for _ in range(2)], unscale, overflows)
    expected, model, servers = both(body=body)
    check_same(expected, model)
    moved(model)
    assert (0 in servers.factors) is overflows
    assert (True in body.skips) is overflows
    assert False in body.skips


def test_a_skipped_step_is_a_step_of_the_job() -> None:
    body = half([torch.amp.GradScaler("cpu", 1024.0) for _ in range(2)], False, True)
    _, _, servers = both(body=body, optimizer=lambda model: torch.optim.Adam(model.parameters(), 0.01))
    skipped = servers.factors.count(0.0)
    assert 0 < skipped < len(servers.exchanges)
    weight = next(index for index in servers.counts if servers.states[index])
    assert servers.counts[weight] == len(servers.exchanges) - skipped  # so has Adam's own


def test_clipping_behind_the_scaler_is_found() -> None:
    scaler = torch.amp.GradScaler("cpu", 1024.0)
    with lone_job(SEED):
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        next(elastic.epochs(1))
        images, labels = next(iter(elastic.DataLoader(data(), BATCH)))
        scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.1)
        with pytest.raises(
            ConfigurationError, match=r"instead of clip_grad_norm_ make elastic.Optimizer\(..., max_norm"
        ):
            scaler.step(optimizer)


def test_a_scaler_does_not_overlap() -> None:
    scaler = torch.amp.GradScaler("cpu", 1024.0)
    with lone_job(SEED):
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model), overlap=True)
        next(elastic.epochs(1))
        images, labels = next(iter(elastic.DataLoader(data(), BATCH)))
        scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
        with pytest.raises(ConfigurationError, match=r"overlap=True sends gradients before GradScaler"):
            scaler.step(optimizer)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_step_that_was_refused_may_be_made_when_the_script_has_mended_it(enabled: bool) -> None:
    scalers = [torch.amp.GradScaler("cpu", 1024.0, enabled=enabled) for _ in range(2)]

    def body(model: nn.Module, optimizer: Any, batch: Any) -> None:
        images, labels = batch
        scaler = scalers[isinstance(optimizer, elastic.Optimizer)]
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
        if isinstance(optimizer, elastic.Optimizer):
            optimizer.param_groups[0]["lr"] = float("nan")
            with pytest.raises(ConfigurationError, match="lr is nan"):
                scaler.step(optimizer)
            optimizer.param_groups[0]["lr"] = 0.1
        scaler.step(optimizer)
        scaler.update()

    expected, model, _ = both(linear, body=body)
    check_same(expected, model)
    moved(model, linear)


@pytest.mark.parametrize("enabled", [True, False])
def test_each_push_says_whether_its_worker_has_a_scaler(enabled: bool) -> None:
    scaler, told = torch.amp.GradScaler("cpu", 1024.0, enabled=enabled), []
    with lone_job(SEED) as (_, servers):
        made = servers.run
        servers.run = lambda push, boundary: (told.append(push.skip_overflow), made(push, boundary))[1]  # type: ignore[method-assign]
        model = network()
        optimizer = elastic.Optimizer(model, sgd(model))
        for _epoch in elastic.epochs(1):
            for images, labels in elastic.DataLoader(data(), BATCH):
                optimizer.zero_grad()
                scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
                scaler.step(optimizer)
                scaler.update()
    assert set(told) == {enabled}
