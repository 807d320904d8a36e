"""Numbers of an optimizer's groups (learning rate, betas) travel with each step: the chief's count at all members."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

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
                group[name] = type(old)(number) if number.is_integer() else number


def is_one_number(value: Any) -> bool:
    """Return whether a value in a group is a number, perhaps as a tensor."""
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1)


def _places(optimizer: torch.optim.Optimizer) -> Iterator[_Place]:
    """Yield the optimizer's own numbers: what schedulers note in groups is not there at each worker."""
    for group in optimizer.param_groups:
        for name in sorted((optimizer.defaults.keys() & group.keys()) - _HOW):
            value = group[name]
            several = isinstance(value, tuple | list) and all(isinstance(item, int | float) for item in value)
            if several or is_one_number(value):
                yield group, name
