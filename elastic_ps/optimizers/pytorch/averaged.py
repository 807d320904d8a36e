"""This is PyTorch's gradient descent that keeps an average of the parameters beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastic_ps.core.segments import Array
from elastic_ps.optimizers.pytorch.arithmetic import add
from elastic_ps.optimizers.pytorch.torch_rule import Numbers, TorchRule
from elastic_ps.optimizers.rule import Kernel


@dataclass(frozen=True)
class TorchASGD(TorchRule):
    """`TorchASGD` (Polyak and Juditsky) is::

        w = (1 - lambd * eta) * w - eta * g
        a = a + mu * (w - a)               (a = w until t0 updates have been made)

    where eta = lr / (1 + lambd * lr * (t - 1))^alpha and mu = 1 / max(1, t - 1 - t0).

    PyTorch takes the learning rate that the update before had: it differs where a schedule changes it.
    """

    numbers: ClassVar[Mapping[str, float]] = {
        "lr": 1e-2,
        "weight_decay": 0.0,
        "lambd": 1e-4,
        "alpha": 0.75,
        "t0": 1e6,
    }

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`: the average."""
        return ("ax",)

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        eta, mu = averaging(count - 1, numbers)

        def step(w: Array, g: Array, work: Array, average: Array) -> None:
            kind = w.dtype.type
            w *= kind(1 - numbers["lambd"] * eta)
            add(w, g, -eta, out=w)
            if mu == 1:
                average[...] = w
            else:
                np.subtract(w, average, out=work[0])
                work[0] *= kind(mu)
                average += work[0]

        return step


def averaging(count: int, numbers: Numbers) -> tuple[float, float]:
    """Return PyTorch's `eta` and `mu` after so many updates, which it keeps in float32.

    Args:
        count: updates that have been made.
        numbers: of the parameter group.
    """
    lr = numbers["lr"]
    eta = np.float32(lr / (1 + numbers["lambd"] * lr * count) ** numbers["alpha"])
    return float(eta), float(np.float32(1 / max(1, count - numbers["t0"])))
