"""This module checks what an `elastic.Optimizer` is given, before anything is changed."""

import math

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.worker.script.script_job import ScriptJob

COMPRESSIONS = ("bfloat16", "float16")
"""Of `elastic.Optimizer`: rounding alone, as it keeps what has overflowed visible to a GradScaler."""


def check_arguments(model: object, optimizer: object, wrapper: type[torch.optim.Optimizer]) -> None:
    """Refuse what is no model, no optimizer, or wrapped already.

    Args:
        model: that is to be trained.
        optimizer: the script's own.
        wrapper: the class of those that are wrapped.

    Raises:
        ConfigurationError: it is one of these.
    """
    if not isinstance(model, torch.nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigurationError(
            "elastic.Optimizer(model, optimizer) takes a torch.nn.Module and the optimizer of its parameters"
        )
    if isinstance(optimizer, wrapper):
        raise ConfigurationError("elastic.Optimizer: its optimizer is an elastic.Optimizer already")
    if not hasattr(optimizer, "_optimizer_load_state_dict_pre_hooks"):  # which PyTorch's constructor makes
        raise ConfigurationError(
            f"{type(optimizer).__name__} has not called torch.optim.Optimizer.__init__: where it wraps another, as "
            "what accelerator.prepare returns, give elastic.Optimizer the optimizer itself"
        )


def check_place(job: ScriptJob) -> None:
    """Refuse an optimizer that comes before or after the rehearsal. Raises ConfigurationError."""
    if job.spec is None:
        raise ConfigurationError(
            "optimizer.step() outside of a loop over an elastic.DataLoader: give its batches to the model, or "
            "evaluate without step()"
        )
    if not job.staging.rehearsing:
        raise ConfigurationError("make elastic.Optimizer before the loop over the elastic.DataLoader begins")


def check_states(given: object) -> None:
    """Refuse what no optimizer's `state_dict` returns, a model's say. Raises ConfigurationError."""
    if not isinstance(given, dict) or not {"state", "param_groups"} <= given.keys():
        raise ConfigurationError(
            f"optimizer.load_state_dict takes what an optimizer's state_dict() has returned, not {given!r:.80}: "
            "is that a model's?"
        )


def checked_norm(bound: float | None) -> float | None:
    """Return a bound of gradients' norm. Raises ConfigurationError where it is none."""
    if bound is None:
        return None
    try:
        is_norm = bound > 0 and math.isfinite(bound)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a tensor of several numbers
        is_norm = False
    if not is_norm:
        raise ConfigurationError(f"elastic.Optimizer: max_norm={bound!r:.80}: give a number above 0, or None")
    return float(bound)


def checked_compression(kind: str | None) -> str | None:
    """Return how gradients travel. Raises ConfigurationError where there is no such way."""
    if kind is not None and kind not in COMPRESSIONS:
        raise ConfigurationError(
            f"elastic.Optimizer: compression={kind!r}: give {' or '.join(map(repr, COMPRESSIONS))}, or None"
        )
    return kind
