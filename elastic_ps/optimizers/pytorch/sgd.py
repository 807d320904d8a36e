"""`TorchSGD` is PyTorch's gradient descent, with momentum where it is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.pytorch.arithmetic import add
from elastic_ps.optimizers.pytorch.torch_rule import Numbers, TorchRule
from elastic_ps.optimizers.rule import Kernel


@dataclass(frozen=True)
class TorchSGD(TorchRule):
    """`TorchSGD` is::

        g = g + weight_decay * w
        b = momentum * b + (1 - dampening) * g     (the first time b = g)
        w = w - lr * (g + momentum * b where nesterov, else b)

    Args:
        momentum: some group has momentum, so that there are velocities.
        nesterov: see above.
    """

    momentum: bool = False
    nesterov: bool = False

    numbers: ClassVar[Mapping[str, float]] = {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0}

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return ("momentum_buffer",) if self.momentum else ()

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """Return whether it makes no difference."""
        return not self.momentum and not any(group.get("weight_decay") for group in hyper.groups)

    def compiled(self, count: int, hyper: Hyper, constants: Constants) -> tuple[str, Sequence[Any]] | None:
        """See `Elementwise.compiled`."""
        numbers = self.group(hyper)
        common, momentum = self.gradient_constants(numbers), numbers["momentum"]
        if not (self.momentum and momentum):
            return "torch_sgd", (*common, -numbers["lr"])
        name = "torch_sgd_nesterov" if self.nesterov else "torch_sgd_momentum"
        return name, (*common, -numbers["lr"], momentum, _rest(count, numbers))

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        momentum, lr, rest = numbers["momentum"], numbers["lr"], _rest(count, numbers)

        def plain(w: Array, g: Array, work: Array, *_: Array) -> None:
            add(w, g, -lr, out=w)

        def step(w: Array, g: Array, work: Array, velocity: Array) -> None:
            velocity *= w.dtype.type(momentum)
            add(velocity, g, rest, out=velocity)
            if self.nesterov:
                add(g, velocity, momentum, out=work[0])
            add(w, work[0] if self.nesterov else velocity, -lr, out=w)

        return step if self.momentum and momentum else plain


def _rest(count: int, numbers: Numbers) -> float:
    """Return how much of the gradient goes into the velocity, which is 0 before the first update."""
    return 1 - numbers["dampening"] if count > 1 else 1.0
