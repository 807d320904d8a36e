"""What a script trains in a batch by an optimizer of its own is the job's, or lasts no longer than the batch."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.optimizer import _global_optimizer_pre_hooks  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from tests.elastic_ps.torch.allreduce.lone_group import lone_group  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402
from tests.elastic_ps.torch.small_script import DATA, loss, model  # noqa: E402

OTHER = r"Adam.step\(\) in a batch, of an optimizer that no elastic.Optimizer wraps: .* train 2 of its parameters for"


def step(net: nn.Module, optimizer: Any, batch: Any) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    optimizer.step()


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters())


def loop(net: nn.Module, body: Any, trained: nn.Module | None = None) -> None:
    """Train in a loop whose body is called with each batch, too."""
    optimizer = elastic.Optimizer(net, torch.optim.SGD((trained or net).parameters(), 0.1))
    for _epoch in elastic.epochs(2):
        for batch in elastic.DataLoader(DATA, 4):
            step(trained or net, optimizer, batch)
            body(batch)
        assert not _global_optimizer_pre_hooks, "nobody else is watched between loops"


@pytest.mark.parametrize("job", [lone_job, lone_group])
def test_an_optimizer_that_was_not_wrapped_is_refused_in_the_rehearsal(job: Any) -> None:
    other, bodies = model(), []
    own = adam(other)

    def forgotten(batch: Any) -> None:
        bodies.append(batch)
        step(other, own, batch)

    with job(), pytest.raises(ConfigurationError, match=OTHER):
        loop(model(), forgotten)
    assert len(bodies) == 1
    assert not _global_optimizer_pre_hooks
    step(other, own, DATA[:4])  # behind the loop it is the script's own


def test_so_it_is_over_another_part_of_the_wrapped_model() -> None:
    net = nn.ModuleDict({"generator": model(), "critic": model()})
    own = adam(net["critic"])
    with lone_job(), pytest.raises(ConfigurationError, match=OTHER):
        loop(net, lambda batch: step(net["critic"], own, batch), net["generator"])


def test_one_that_a_batch_has_made_for_the_next_ones_is_refused_there() -> None:
    other, made = model(), []

    def late(batch: Any) -> None:
        made.extend([adam(other)] if not made else [])
        step(other, made[0], batch)

    with lone_job() as (job, _), pytest.raises(ConfigurationError, match=OTHER):
        loop(model(), late)
    assert job.rehearsed


@pytest.mark.parametrize("job", [lone_job, lone_group])
def test_an_optimizer_of_the_batch_alone_is_the_scripts_own(job: Any) -> None:
    net = model()

    def inner(batch: Any) -> None:
        fast = copy.deepcopy(net)
        own = adam(fast)
        for _ in range(2):
            step(fast, own, batch)
        inputs = nn.Parameter(batch[0].clone())
        step(net, torch.optim.SGD([inputs], 0.1), (inputs, batch[1]))
        net.zero_grad()

    with job():
        loop(net, inner)


class Handing(torch.optim.SGD):
    """An optimizer that has another one make its steps."""

    def __init__(self, parameters: Any, lr: float):
        super().__init__(parameters, lr)
        self.base = torch.optim.SGD([*self.param_groups[0]["params"]], lr)

    def step(self) -> None:
        self.base.step()


def test_an_optimizer_that_is_part_of_a_wrapped_one_steps() -> None:
    with lone_group():
        net = model()
        optimizer = elastic.Optimizer(net, Handing(net.parameters(), 0.1))
        for _epoch in elastic.epochs(1):
            for batch in elastic.DataLoader(DATA, 4):
                before = net[0].weight.clone()
                step(net, optimizer, batch)
        assert not torch.equal(net[0].weight, before)
