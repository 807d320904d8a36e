"""`OwnNumbers` are what an optimizer of the script's own changes in its groups by itself, such as a count of its steps.

They go to other workers and into checkpoints with the state of each parameter of the group. What an optimizer keeps
elsewhere nobody else would be given, so that it is refused in the first step.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from elastic_ps.torch.allreduce.replica.group_numbers import is_one_number
from elastic_ps.torch.allreduce.replica.kept_elsewhere import check_kept, kept_elsewhere

PREFIX = "param_groups."
"""Of the names of such numbers, in the state of a parameter."""

_Place = tuple[int, str]


class OwnNumbers:
    """`OwnNumbers` watches the steps of an optimizer; one of torch.optim changes nothing but states.

    Args:
        optimizer: the script's own.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self._optimizer = optimizer
        self._places: set[_Place] = set()  # numbers that a step has changed, by group
        self._given: dict[_Place, Any] = {}  # by another worker; a scheduler may set the groups back until the step
        self._is_checked = False
        self._group_of = {
            id(parameter): number
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }

    def beside(self, parameter: torch.Tensor) -> dict[str, Any]:
        """Return the numbers that belong to the state of a parameter, by name."""
        group = self._group_of[id(parameter)]
        names = sorted(name for number, name in self._places if number == group)
        now = self._optimizer.param_groups[group]
        return {PREFIX + name: self._given.get((group, name), now.get(name)) for name in names}

    def taken_out(self, parameter: torch.Tensor, state: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the numbers that came with the state of a parameter for the next step; return the state alone."""
        group = self._group_of[id(parameter)]
        for name, value in state.items():
            if name.startswith(PREFIX):
                place = group, name.removeprefix(PREFIX)
                self._places.add(place)
                self._given[place] = value
        return {name: value for name, value in state.items() if not name.startswith(PREFIX)}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Make a step in it; one of torch.optim needs none of this.

        Raises:
            ConfigurationError: the optimizer keeps something where nobody else would be given it.
        """
        optimizer = self._optimizer
        for (group, name), value in self._given.items():
            optimizer.param_groups[group][name] = value
        self._given = {}
        elsewhere = {} if self._is_checked else kept_elsewhere(optimizer)
        before = self._numbers()
        yield
        now = self._numbers()
        self._places |= {place for place in now if before.get(place) != now[place]}
        if not self._is_checked:
            self._is_checked = True
            check_kept(optimizer, elsewhere)

    def _numbers(self) -> dict[_Place, str]:
        """Return the numbers of all groups as text, which equals itself where it is no number."""
        return {
            (number, name): repr(float(value))
            for number, group in enumerate(self._optimizer.param_groups)
            for name, value in group.items()
            if is_one_number(value)
        }
