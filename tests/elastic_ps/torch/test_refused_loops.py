"""What the loop of a script does and cannot be done is refused, in the words of PyTorch, with what to do instead."""

import copy
import io
import multiprocessing
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.arrays import ModelArray  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402
from tests.elastic_ps.torch.small_script import DATA, loss, model, train, wrapped  # noqa: E402


def first_batch() -> None:
    next(elastic.epochs(1))
    next(iter(elastic.DataLoader(DATA, 4)))


def test_a_loop_without_epochs() -> None:
    with lone_job(), pytest.raises(ConfigurationError, match=r"outside of `for epoch in elastic.epochs\(n\)`"):
        next(iter(elastic.DataLoader(DATA, 4)))


def plain(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    optimizer.step()


def test_a_second_loop_goes_on_where_the_first_has_ended() -> None:
    with lone_job() as (_, servers):
        net = model()
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
        loader = elastic.DataLoader(DATA, 4)
        for last in (2, 5):
            for epoch in elastic.epochs(last):
                for batch in loader:
                    plain(net, optimizer, batch, epoch)
        assert len(servers.exchanges) == 5 * len(loader)
        with pytest.raises(ConfigurationError, match=r"epochs\(3\) has no epoch left: .* such as elastic.epochs\(8\)"):
            elastic.epochs(3)


def test_a_loop_behind_the_last_epoch() -> None:
    """It had no batch, in silence: `update_bn` left statistics of nothing."""
    with lone_job():
        net = model()
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
        loader = elastic.DataLoader(DATA, 4)
        for epoch in elastic.epochs(1):
            for batch in loader:
                plain(net, optimizer, batch, epoch)
        with pytest.raises(ConfigurationError, match=r"elastic.DataLoader is behind the last of elastic.epochs\(1\)"):
            next(iter(loader))


def test_a_plain_body_is_taken() -> None:
    train(plain)
    train(exploding)


def exploding(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    (loss(net, batch) * torch.nan).backward()
    optimizer.step()


def clipping(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def clamping(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    for parameter in net.parameters():
        parameter.grad.data.clamp_(-1e-3, 1e-3)  # which PyTorch does not count
    optimizer.step()


def accumulating(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    loss(net, batch).backward()
    if number % 2 == 0:
        optimizer.step()


def with_closure(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.step(lambda: loss(net, batch))


def without_backward(_net: nn.Module, optimizer: Any, _batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    optimizer.step()


def hooking(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    if number == 1:
        optimizer.wrapped.register_step_post_hook(lambda *_: None)
    plain(net, optimizer, batch, number)


def turning(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    optimizer.param_groups[0]["maximize"] = number == 1
    plain(net, optimizer, batch, number)


def diverging(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    optimizer.param_groups[0]["lr"] = float("nan")
    plain(net, optimizer, batch, number)


def gaining_momentum(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    optimizer.param_groups[0]["momentum"] = 0.9
    plain(net, optimizer, batch, number)


def adding_a_group(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    if number == 1:
        net.register_parameter("scale", nn.Parameter(torch.ones(2)))
        optimizer.wrapped.add_param_group({"params": [net.scale]})
    plain(net, optimizer, batch, number)


def taking_a_parameter_out(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    if number == 1:
        optimizer.wrapped.param_groups[0]["params"] = [net[0].weight]
    plain(net, optimizer, batch, number)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (adding_a_group, "have other parameters than when .* was made: give torch.optim's optimizer all its groups"),
        (taking_a_parameter_out, "have other parameters than when"),
        (clipping, "gradient of 0.weight was changed after loss.backward.*clip_grad_norm_"),
        (clamping, "gradient of 0.weight was changed after loss.backward"),
        (accumulating, r"no optimizer.step\(\) in this batch: .* larger global_batch; .* len\(part\) / len\(batch\)"),
        (with_closure, r"optimizer.step\(closure\) is refused"),
        (without_backward, r"without a gradient: call loss.backward\(\)"),
        (hooking, "SGD has hooks of its step, .* register them with the elastic.Optimizer"),
        (turning, "group 0 has maximize=True now, and the optimizer was made with False, which servers do not"),
        (diverging, "parameter group 0: lr is nan"),
        (gaining_momentum, "parameter group 0 has momentum 0.9, but none had any"),
    ],
)
def test_bodies(body: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        train(body)


def train_with_cache(found: torch.Tensor | None, first: int) -> None:
    """A loop whose model has a buffer of four numbers, which is another one from the batch `first` on."""
    with lone_job():
        net = model()
        net.register_buffer("cache", torch.zeros(4))
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
        next(elastic.epochs(1))
        for number, batch in enumerate(elastic.DataLoader(DATA, 4)):
            if number == first:
                net.cache = found
            plain(net, optimizer, batch, number)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize(
    ("found", "now"),
    [
        (torch.ones(9), r"has the shape \(9,\) now"),
        (torch.ones(2), r"has the shape \(2,\) now"),
        (None, "is None now"),
    ],
)
def test_a_buffer_whose_shape_changes(found: torch.Tensor | None, now: str, first: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"buffer cache {now}, and had the shape \(4,\) when the job began"):
        train_with_cache(found, first)


def test_memory_that_has_become_smaller_is_not_written_over() -> None:
    net = model()
    net.register_buffer("cache", torch.zeros(4))
    arrays = [ModelArray(net, "cache"), ModelArray(net[0], "bias")]
    assert ModelArray.addresses(arrays).all()
    net.cache = torch.zeros(2)
    assert ModelArray.addresses(arrays).astype(bool).tolist() == [False, True]


def dividing(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    for _ in range(2):
        loss(net, batch).backward()
    optimizer.step()


def taking_away(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    loss(net, batch).backward()
    net[0].bias.grad = None
    optimizer.step()


def replacing(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    net[0].bias.grad = 2 * net[0].bias.grad
    optimizer.step()


def collecting(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    optimizer.state_dict()
    optimizer.step()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (collecting, r"state_dict\(\) between loss.backward\(\) and optimizer.step\(\)"),
        (dividing, r"backward\(\) is called once more in this batch, .* without overlap=True"),
        (taking_away, "a gradient was taken away"),
        (replacing, "or replaced between"),
    ],
)
def test_bodies_whose_gradients_have_been_sent(monkeypatch: pytest.MonkeyPatch, body: Any, words: str) -> None:
    monkeypatch.setattr("elastic_ps.worker.script.early_sends.PORTION_BYTES", 1)
    train(plain, overlap=True)
    with pytest.raises(ConfigurationError, match=words):
        train(body, overlap=True)
    train(body)


def test_two_optimizers_do_not_overlap() -> None:
    with lone_job():
        net = model()
        parts = [net[0].weight], [net[0].bias]
        both = [elastic.Optimizer(net, torch.optim.SGD(part, 0.1), overlap=True) for part in parts]
        with pytest.raises(ConfigurationError, match=r"one elastic.Optimizer; leave it out"):
            first_batch()
        del both


def test_a_schedule_that_follows_a_metric() -> None:
    with pytest.raises(ConfigurationError, match="ReduceLROnPlateau is refused"):
        train(plain, schedule=torch.optim.lr_scheduler.ReduceLROnPlateau)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda it: torch.save({"it": it}, io.BytesIO())])
def test_a_copy_of_an_optimizer(copied: Any) -> None:
    optimizer = wrapped(torch.optim.SGD, lr=0.1)
    with pytest.raises(ConfigurationError, match=r"cannot be copied or pickled, .*: save optimizer.state_dict\(\)"):
        copied(optimizer)
    assert copied(optimizer.wrapped) is not optimizer.wrapped


def test_a_step_outside_of_the_loop() -> None:
    with lone_job():
        net = model()
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
        loss(net, DATA[:4]).backward()
        with pytest.raises(ConfigurationError, match=r"outside of a loop over an elastic.DataLoader"):
            optimizer.step()


def test_an_optimizer_that_comes_too_late() -> None:
    with lone_job():
        net = model()
        first = elastic.Optimizer(net, torch.optim.SGD([net[0].weight], 0.1))
        next(elastic.epochs(1))
        for number, batch in enumerate(elastic.DataLoader(DATA, 4)):
            if number == 1:
                late = elastic.Optimizer(net, torch.optim.SGD([net[0].bias], 0.1))
                loss(net, batch).backward()
                with pytest.raises(ConfigurationError, match="before the loop"):
                    late.step()
                break
            plain(net, first, batch, number)


def test_an_optimizer_that_begins_behind_the_first_batch() -> None:
    with lone_job():
        net = model()
        one, two = (elastic.Optimizer(net, torch.optim.SGD([part], 0.1)) for part in net.parameters())
        next(elastic.epochs(1))
        batches = iter(elastic.DataLoader(DATA, 4))
        for number in range(2):
            plain(net, one, next(batches), number)
        with pytest.raises(ConfigurationError, match=r"more than the 1 exchanges .* In PyTorch: the first batch of"):
            two.step()


def test_a_parameter_of_two_optimizers() -> None:
    with lone_job():
        net = model()
        both = [elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1)) for _ in range(2)]
        with pytest.raises(ConfigurationError, match=r"parameter 0.weight is in two elastic.Optimizers"):
            first_batch()
        del both


@pytest.mark.parametrize("overlap", [False, True])
def test_an_optimizer_that_the_script_has_let_go_updates_nothing(overlap: bool) -> None:
    with lone_job() as (_, servers):
        net = model()
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1), overlap=overlap)
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.2), overlap=overlap)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _epoch in elastic.epochs(2):
            for number, batch in enumerate(elastic.DataLoader(DATA, 4)):
                plain(net, optimizer, batch, number)
            scheduler.step()
    assert len(servers.exchanges) == 2 * 3
    assert optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize(
    "call",
    [
        lambda: elastic.epochs(3),
        lambda: elastic.report(loss=0.5),
        elastic.rank,
        elastic.num_workers,
        lambda: next(iter(elastic.DataLoader(DATA, 4))),
    ],
    ids=["epochs", "report", "rank", "num_workers", "DataLoader"],
)
def test_a_process_that_loads_data_does_not_train(monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    with pytest.raises(ConfigurationError, match='under `if __name__ == "__main__":`'):
        call()
    assert not elastic.is_chief()
