"""Optimizers that no `elastic.Optimizer` wraps are found where one trains what outlasts a batch.

Each worker would train that for itself, a joiner would begin with what is untrained, and no checkpoint would have it:
of a script with two models, say, that wrapped the optimizer of one. What a batch's body makes is its own: an attack on
its inputs, or an inner loop over a copy of the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.process.quick_end import script_objects
from elastic_ps.torch.optimizer import optimizers

_older: WeakSet[torch.optim.Optimizer] = WeakSet()
"""Those that the script had before the batch under way; one that a batch has made is the batch's own in that alone."""


def note_optimizers() -> None:
    """Take note of all that there are, before the rehearsal."""
    _older.update(each for each in script_objects() if issubclass(type(each), torch.optim.Optimizer))


@contextmanager
def others_refused() -> Iterator[None]:
    """Refuse steps of those while a batch's body is under way; what has made one then is older than the next batch."""
    stepped: WeakSet[torch.optim.Optimizer] = WeakSet()

    def check(optimizer: torch.optim.Optimizer, _args: Any, _settings: Any) -> None:
        if optimizer in _older:
            _check(optimizer)
        stepped.add(optimizer)

    handle = register_optimizer_step_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()
        _older.update(stepped)


def _check(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer over parameters that no elastic one updates; one that is part of another has the same."""
    if any(optimizer is each or optimizer is each.wrapped for each in optimizers()):
        return
    trained = {parameter for each in optimizers() for parameter in _parameters(each)}
    if others := len(_parameters(optimizer) - trained):
        raise ConfigurationError(
            f"{type(optimizer).__name__}.step() in a batch, of an optimizer that no elastic.Optimizer wraps: each "
            f"worker would train {others} of its parameters for itself. Wrap it, too, as in elastic.Optimizer(model, "
            "optimizer), or make them a group of the optimizer that is wrapped. If they last no longer than a batch "
            "(an attack, an inner loop), make it in the batch's body"
        )


def _parameters(optimizer: torch.optim.Optimizer) -> set[torch.Tensor]:
    return {parameter for group in optimizer.param_groups for parameter in group["params"]}
