"""Two models that take turns, each with an optimizer of its own, as those of a GAN do."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from tests.elastic_ps.torch.beside_plain import BATCH, SEED, STEPS, check_same, data  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

pytestmark = pytest.mark.slow


def part(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(ins, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, outs))


def turn(maker: nn.Module, judge: nn.Module, optimizers: Any, samples: torch.Tensor) -> None:
    """One batch of DCGAN's loop: the judge's step, then the maker's."""
    of_maker, of_judge = optimizers
    judge.zero_grad()
    made = maker(torch.ones(len(samples), 2).cumsum(0))
    nn.functional.softplus(-judge(samples)).mean().backward()
    nn.functional.softplus(judge(made.detach())).mean().backward()
    of_judge.step()
    maker.zero_grad()
    nn.functional.softplus(-judge(made)).mean().backward()
    of_maker.step()


def trained(as_one: bool) -> tuple[nn.Module, list[str]]:
    """Both models after two epochs, and the names that a file of their weights would have."""
    with lone_job(SEED) as (job, servers):
        torch.manual_seed(3)
        models = nn.ModuleDict({"maker": part(2, 6), "judge": part(6, 1)})
        maker, judge = models.values()
        of_judge = elastic.Optimizer(models if as_one else judge, torch.optim.Adam(judge.parameters(), 0.01))
        of_maker = elastic.Optimizer(models if as_one else maker, torch.optim.Adam(maker.parameters(), 0.01))
        for _epoch in elastic.epochs(2):
            for samples, _labels in elastic.DataLoader(data(), BATCH):
                turn(maker, judge, (of_maker, of_judge), samples)
        assert len(servers.exchanges) == 2 * 2 * STEPS
        return models, [tensor.key[2:] for tensor in job.node.inbox.model.tensors]


def test_one_model_of_both_has_a_name_for_each_tensor_and_trains_as_the_two_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    as_one, names = trained(as_one=True)
    assert sorted(names) == sorted(as_one.state_dict())
    assert not caplog.messages
    apart, names = trained(as_one=False)
    check_same(apart, as_one)
    assert len(set(names)) < len(names)
    (told,) = caplog.messages
    assert told.startswith("0.bias is a name in two models of this script, each of an elastic.Optimizer of its own")
