"""This module finds what an optimizer keeps outside of the states of its parameters and the numbers of its groups."""

import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.torch.allreduce.replica.group_numbers import is_one_number

_OF_TORCH = frozenset({"_need_device_dtype_check_for_fused", "_warned_capturable_if_run_uncaptured"})
"""Attributes in which optimizers of PyTorch, and classes made of them, note that they have checked or warned."""

_KNOWN = frozenset({"param_groups", "state", "defaults", "_opt_called", "_step_count"}) | _OF_TORCH
"""Attributes that other workers are given, that PyTorch's schedulers write, or that say nothing of what is trained."""

_SAMPLED = 64
"""Elements of a tensor that are looked at, at least."""


def kept_elsewhere(optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Return a checksum of each thing that an optimizer keeps where no other worker is given it, by its description.

    Args:
        optimizer: the script's own.
    """
    parameters = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    given = {id(optimizer.state), *map(_storage, parameters)}
    found = {f"self.{name}": _mark(value, given) for name, value in vars(optimizer).items() if name not in _KNOWN}
    for number, group in enumerate(optimizer.param_groups):
        for name in group.keys() - {"params"} - optimizer.defaults.keys():
            if not is_one_number(group[name]):
                found[f"param_groups[{number}][{name!r}]"] = _mark(group[name], given)
    for key, state in optimizer.state.items():
        if key not in parameters:
            found[f"self.state[{key!r:.40}]"] = _mark(state, given)
    return found


def check_kept(optimizer: torch.optim.Optimizer, before: Mapping[str, int]) -> None:
    """Refuse an optimizer whose step has changed what it keeps elsewhere.

    Args:
        optimizer: the script's own.
        before: its `kept_elsewhere` before the step.

    Raises:
        ConfigurationError: names the first.
    """
    for what, mark in kept_elsewhere(optimizer).items():
        if before.get(what, 0) != mark:
            raise ConfigurationError(
                f"{type(optimizer).__name__} keeps {what} and changes it in its step, and with --mode all-reduce a "
                "worker that joins, or a checkpoint, is given no more than self.state[parameter] and the numbers in "
                'param_groups: keep it there (self.state[parameter]["momentum"], group["step"]), or take an optimizer '
                "of torch.optim"
            )


def _mark(value: Any, given: set[int]) -> int:
    """Return a checksum of the numbers and tensors in a value; 0: it has none, or what other workers are given.

    Args:
        value: a number, a tensor, an optimizer, or what consists of such.
        given: addresses of the parameters' memory, and of the optimizer's states.
    """
    if isinstance(value, torch.Tensor):
        return 0 if _storage(value) in given else zlib.crc32(_sample(value)) or 1
    if isinstance(value, int | float):
        return zlib.crc32(repr(value).encode()) or 1
    if isinstance(value, torch.optim.Optimizer):
        return _mark([value.state, {name: each for name, each in vars(value).items() if name not in _KNOWN}], given)
    if isinstance(value, Mapping):
        value = [] if id(value) in given else list(value.values())
    if isinstance(value, list | tuple | deque):
        marks = [_mark(each, given) for each in value]
        return (zlib.crc32(repr(marks).encode()) or 1) if any(marks) else 0
    return 0


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _sample(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().to_dense().reshape(-1)
    return repr((tensor.shape, flat[:: max(1, len(flat) // _SAMPLED)].tolist())).encode()
