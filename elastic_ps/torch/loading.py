"""This module loads the weights that a job has exported into a model, in any script: it needs no job."""

from collections.abc import Iterable
from pathlib import Path

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.extras import how_to_install
from elastic_ps.torch.arrays import is_number, overwrite
from elastic_ps.torch.model import own_name


def load(model: torch.nn.Module, path: str | Path) -> None:
    """Load the file of `elasticctl export JOB -o model.safetensors` into a model.

    Tensors keep their element type and device. Buffers that no job holds, as they are no numbers, stay as they are.

    Args:
        model: of the shape of the one that was trained.
        path: of the file.

    Raises:
        ConfigurationError: there is no such file, or it is of another model; nothing has been loaded then.
    """
    if not isinstance(model, torch.nn.Module):
        raise ConfigurationError(f"elastic.load(model, path) takes a torch.nn.Module, not {model!r:.80}")
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise ConfigurationError(
            f"elastic.load needs the package safetensors ({error}): {how_to_install('torch')}"
        ) from error
    try:
        found = load_file(path)
    except Exception as error:  # the library has one of its own
        raise ConfigurationError(f"{path} is no file of weights that can be read: {error}") from error
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    own = {own_name(name): tensor for name, tensor in named}
    _check(str(path), own, found)
    with torch.no_grad():
        for name, values in found.items():
            overwrite(own[name], values)


def _check(path: str, own: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    """Refuse weights that are not of this model.

    Args:
        path: of the file.
        own: the model's tensors by name, tied ones by all of theirs.
        found: the file's.
    """
    loaded = {id(own[name]) for name in found if name in own}
    missing = [
        name
        for name, tensor in own.items()
        if id(tensor) not in loaded and (isinstance(tensor, torch.nn.Parameter) or is_number(tensor))
    ]
    for words, names in (("lacks", missing), ("has what the model lacks:", found.keys() - own.keys())):
        if names:
            raise ConfigurationError(f"{path} {words} {_listed(names)}: build the model as the job's script does")
    for name, values in found.items():
        if own[name].is_meta or torch.nn.parameter.is_lazy(own[name]):
            raise ConfigurationError(
                f"{name} of the model has no memory yet: before elastic.load call model.to_empty(device=...) where it "
                "was made on meta, or the model once with a batch where it has a lazy layer"
            )
        if values.shape != own[name].shape:
            raise ConfigurationError(
                f"{path}: {name} has the shape {tuple(values.shape)}, and the model's {tuple(own[name].shape)}: "
                "build the model as the job's script does"
            )


def _listed(names: Iterable[str]) -> str:
    """Return a few of the names, and how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - 3} more" if len(every) > 3 else ""
    return ", ".join(every[:3]) + more
