"""Losses over tokens, of which some samples have few and some none: who sums them has one gradient however divided."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from elastic_ps.core.data_order import DataSpec, Place, share  # noqa: E402
from elastic_ps.server.phases import weights  # noqa: E402
from elastic_ps.torch.allreduce.exchange import _weights  # noqa: E402
from elastic_ps.worker.script.data_position import StepPart  # noqa: E402

TOKENS, KINDS, WORDS, OTHERS = 12, 4, 3, -100
SOME = torch.tensor([[1, 0, 2], [3, OTHERS, OTHERS], [OTHERS, OTHERS, OTHERS], [2, 2, OTHERS], [0, OTHERS, OTHERS]])
NONE = torch.where(torch.arange(5)[:, None] < 3, SOME, OTHERS)  # in the second worker's slice
TEXTS = torch.randn(5, WORDS, 6, generator=torch.Generator().manual_seed(1))


def gradient(labels: torch.Tensor, positions: range, loss: str) -> torch.Tensor:
    """The gradient of a worker's slice, of the mean over its tokens or of their sum by a constant."""
    torch.manual_seed(3)
    model, own = nn.Linear(6, KINDS), slice(positions.start, positions.stop)
    logits = model(TEXTS[own]).reshape(-1, KINDS)
    found = nn.functional.cross_entropy(logits, labels[own].reshape(-1), ignore_index=OTHERS, reduction=loss)
    (found if loss == "mean" else found / TOKENS).backward()
    assert model.weight.grad is not None
    return model.weight.grad


def stepped(labels: torch.Tensor, loss: str, workers: int, servers: bool) -> torch.Tensor:
    """What so many workers' gradients come to, on servers or without."""
    spec = DataSpec(True, 5, 5, "short", loss)
    parts = [share(spec, 0, rank, workers) for rank in range(workers)]
    assert len({len(part) for part in parts}) == workers, "unequal"
    gradients = [gradient(labels, part, loss) for part in parts]
    factors, last = [_weights(StepPart(Place(0, 0), part), spec, True).gradients for part in parts], 1.0
    if servers:
        given, last = weights(spec, False, [len(part) for part in parts])
        factors = given or [1.0] * workers
    return sum((each * factor for each, factor in zip(gradients, factors, strict=True)), torch.zeros(())) * last


@pytest.mark.parametrize("servers", [False, True])
@pytest.mark.parametrize("labels", [SOME, NONE], ids=["some", "none"])
def test_a_sum_by_a_constant_is_the_same_however_it_is_divided(labels: torch.Tensor, servers: bool) -> None:
    alone, divided = (stepped(labels, "sum", workers, servers) for workers in (1, 2))
    torch.testing.assert_close(divided, alone)
    mean = stepped(labels, "mean", 1, servers)
    counted = int((labels != OTHERS).sum())
    torch.testing.assert_close(alone * TOKENS / counted, mean)


@pytest.mark.parametrize("servers", [False, True])
@pytest.mark.parametrize("labels", [SOME, NONE], ids=["some", "none"])
def test_a_mean_over_tokens_is_not(labels: torch.Tensor, servers: bool) -> None:
    """Of a slice without any the loss is no number; its gradient is zero, and counts by the samples all the same."""
    alone, divided = (stepped(labels, "mean", workers, servers) for workers in (1, 2))
    assert not torch.allclose(divided, alone)
    assert divided.isfinite().all()
