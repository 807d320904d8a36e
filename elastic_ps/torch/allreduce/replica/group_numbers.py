"""Numbers of an optimizer's groups (learning rate, betas) travel with each step: the chief's count at all members."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from elastic_ps.core.script_arguments import is_number_of_numpy

_Place = tuple[dict[str, Any], str]

_HOW = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Settings that say how an optimizer computes on its worker, and not what."""


def group_numbers(optimizer: torch.optim.Optimizer) -> tuple[float, ...]:
    """Return the numbers of all groups, in an order that all members share."""
    found: list[float] = []
    for group, name in _places(optimizer):
        value = group[name]
        found += map(float, value) if isinstance(value, tuple | list) else (float(value),)
    return tuple(found)


def set_group_numbers(optimizer: torch.optim.Optimizer, numbers: Sequence[float]) -> None:
    """Give the groups the numbers that `group_numbers` returned elsewhere; what is equal already stays as it is."""
    left = iter(numbers)
    for group, name in _places(optimizer):
        old = group[name]
        if isinstance(old, tuple | list):
            new = [next(left) for _ in old]
            if new != list(map(float, old)):
                group[name] = type(old)(new)
        elif (number := next(left)) != float(old):
            if isinstance(old, torch.Tensor):
                old.fill_(number)
            else:
                whole = number.is_integer() and isinstance(old, int | float)
                group[name] = type(old)(number) if whole else number


def is_one_number(value: Any) -> bool:
    """Return whether a value in a group is a number, perhaps as a tensor, or one that numpy has made."""
    return _is_plain(value) or (isinstance(value, torch.Tensor) and value.numel() == 1)


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float) or is_number_of_numpy(value)


def _places(optimizer: torch.optim.Optimizer) -> Iterator[_Place]:
    """Yield the optimizer's own numbers: what schedulers note in groups is not there at each worker."""
    for group in optimizer.param_groups:
        for name in sorted((optimizer.defaults.keys() & group.keys()) - _HOW):
            value = group[name]
            several = isinstance(value, tuple | list) and all(map(_is_plain, value))
            if several or is_one_number(value):
                yield group, name
