"""A `TorchRule` is one of PyTorch's optimizers: its numbers come with each update, by parameter group."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.gradient_sum import DType
from elastic_ps.optimizers.pytorch.arithmetic import add
from elastic_ps.optimizers.rule import Elementwise, Kernel

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class TorchRule(Elementwise):
    """A `TorchRule` prepares the gradient as all of PyTorch's optimizers do; a subclass makes the step.

    State arrays have PyTorch's names. Numbers (`Hyper.groups`) have those of PyTorch's parameter groups, pairs their
    parts' (beta1, beta2).

    Args:
        maximize: go up the gradient.
    """

    maximize: bool = False

    numbers: ClassVar[Numbers] = {"lr": 1e-3, "weight_decay": 0.0}
    """What a group's numbers are where it does not say."""

    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """See `Rule.states`."""
        if dtype not in (np.float32, np.float64):
            raise ConfigurationError(
                f"{type(self).__name__} cannot update a {dtype} parameter: keep parameters in float32, and use "
                "torch.autocast for a forward pass with fewer bits"
            )
        return tuple((name, dtype) for name in self.state_names())

    def decays_gradient(self, numbers: Numbers) -> bool:
        """Return whether weight decay is part of the gradient."""
        return numbers["weight_decay"] != 0

    def group(self, hyper: Hyper) -> Numbers:
        """Return the numbers of the parameter group that an update is of."""
        return {**self.numbers, **(hyper.groups[0] if hyper.groups else {})}

    def gradient_constants(self, numbers: Numbers) -> tuple[float, float]:
        """Return the constants of the compiled rules that prepare the gradient; see `native/kernels.inc`."""
        return -1.0 if self.maximize else 1.0, numbers["weight_decay"] if self.decays_gradient(numbers) else 0.0

    @abstractmethod
    def step(self, count: int, numbers: Numbers) -> Kernel:
        """Return step(value, gradient, work, *states), which may write to the three arrays of `work`.

        Args:
            count: number of the update, from 1.
            numbers: of the parameter group.
        """

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`."""
        numbers = self.group(hyper)
        step, decays = self.step(count, numbers), self.decays_gradient(numbers)
        decay = numbers["weight_decay"]

        def update(value: Array, gradient: Array, work: Array, *states: Array) -> None:
            prepared = gradient
            if self.maximize:
                prepared = np.negative(gradient)
            if decays:
                own = np.empty_like(value)
                add(prepared, value, decay, out=own)
                prepared = own
            step(value, prepared, work, *states)

        return update
