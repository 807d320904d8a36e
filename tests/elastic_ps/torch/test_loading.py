"""elastic.load puts exported weights into a model, or says why they are not its own."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from torch import nn  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.model import tensors_of  # noqa: E402


class Tied(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.decode = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
        self.decode.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool))
        self.register_buffer("scale", torch.rand(3), persistent=False)
        self.register_buffer("wide", torch.rand(1).expand(3))


def exported(model: nn.Module, path: Path, **changes: Any) -> Path:
    """A file of what a job holds of a model."""
    found = {key[2:]: array.tensor.detach().clone() for key, array in tensors_of(model, ())} | changes
    safetensors.save_file({name: tensor for name, tensor in found.items() if tensor is not None}, path)
    return path


def everything(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


@pytest.mark.parametrize("around", [lambda model: model, lambda model: torch.compile(model, backend="eager")])
def test_a_model_has_what_was_trained(tmp_path: Path, around: Any) -> None:
    trained, model = Tied(1), Tied(2)
    trained.norm.running_mean += 3
    elastic.load(around(model), exported(around(trained), tmp_path / "model.safetensors"))
    for name, values in everything(trained).items():
        assert torch.equal(everything(model)[name], values), name
    assert model.decode.weight is model.embed.weight


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm.weight": None, "norm.running_var": None}, "lacks norm.running_var, norm.weight: build the model"),
        ({"head.weight": torch.ones(2)}, "has what the model lacks: head.weight"),
        ({"norm.bias": torch.ones(4)}, r"norm.bias has the shape \(4,\), and the model's \(3,\)"),
    ],
)
def test_weights_of_another_model_are_refused_whole(tmp_path: Path, changes: Any, words: str) -> None:
    path, model = exported(Tied(1), tmp_path / "model.safetensors", **changes), Tied(2)
    before = everything(model)
    with pytest.raises(ConfigurationError, match=words):
        elastic.load(model, path)
    assert all(torch.equal(values, before[name]) for name, values in everything(model).items())


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_model_without_memory_is_refused(tmp_path: Path, device: str) -> None:
    path = exported(nn.Sequential(nn.Linear(3, 2)), tmp_path / "model.safetensors")
    model = nn.Sequential(nn.Linear(3, 2, device=device) if device == "meta" else nn.LazyLinear(2))
    with pytest.raises(ConfigurationError, match=r"0\.\w+ of the model has no memory yet: .*to_empty"):
        elastic.load(model, path)
    ready = model.to_empty(device="cpu") if device == "meta" else model
    ready(torch.ones(1, 3))
    elastic.load(ready, path)


def test_what_is_no_such_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no weights")
    for path in (tmp_path / "nothing", tmp_path / "text"):
        with pytest.raises(ConfigurationError, match="is no file of weights that can be read"):
            elastic.load(Tied(), path)
