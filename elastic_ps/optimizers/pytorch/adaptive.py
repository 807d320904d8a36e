"""These are PyTorch's optimizers that divide each element's step by what its gradients have been."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.pytorch.arithmetic import add, addcdiv, addcmul, lerp
from elastic_ps.optimizers.pytorch.torch_rule import Numbers, TorchRule
from elastic_ps.optimizers.rule import Kernel


@dataclass(frozen=True)
class TorchAdagrad(TorchRule):
    """`TorchAdagrad` (Duchi and others) is::

    s = s + g^2
    w = w - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)
    """

    numbers: ClassVar[Mapping[str, float]] = {"lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10}

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return ("sum",)

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """Return whether it makes no difference."""
        return not any(group.get("weight_decay") for group in hyper.groups)

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        lr = numbers["lr"] / (1 + (count - 1) * numbers["lr_decay"])

        def step(w: Array, g: Array, work: Array, total: Array) -> None:
            addcmul(total, g, g, 1.0, work[0])
            root = np.sqrt(total, out=work[0])
            root += w.dtype.type(numbers["eps"])
            addcdiv(w, g, root, -lr, root)

        return step


@dataclass(frozen=True)
class TorchRMSprop(TorchRule):
    """`TorchRMSprop` (Hinton; centered: Graves) is::

        v = alpha * v + (1 - alpha) * g^2
        a = alpha * a + (1 - alpha) * g            (centered: v - a^2 stands for v)
        b = momentum * b + g / (sqrt(v) + eps)
        w = w - lr * b

    Args:
        momentum: some group has momentum, so that there are velocities.
        centered: see above.
    """

    momentum: bool = False
    centered: bool = False

    numbers: ClassVar[Mapping[str, float]] = {
        "lr": 1e-2,
        "momentum": 0.0,
        "alpha": 0.99,
        "eps": 1e-8,
        "weight_decay": 0.0,
    }

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return (
            "square_avg",
            *(("momentum_buffer",) if self.momentum else ()),
            *(("grad_avg",) if self.centered else ()),
        )

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        lr, momentum, alpha = numbers["lr"], numbers["momentum"], numbers["alpha"]

        def step(w: Array, g: Array, work: Array, square: Array, *others: Array) -> None:
            kind = w.dtype.type
            square *= kind(alpha)
            addcmul(square, g, g, 1 - alpha, work[0])
            root = work[0]
            root[...] = square
            if self.centered:
                average = others[-1]
                lerp(average, g, 1 - alpha, work[1])
                addcmul(root, average, average, -1.0, work[1])
            np.sqrt(root, out=root)
            root += kind(numbers["eps"])
            if self.momentum and momentum > 0:
                velocity = others[0]
                velocity *= kind(momentum)
                addcdiv(velocity, g, root, 1.0, root)
                add(w, velocity, -lr, out=w)
            else:
                addcdiv(w, g, root, -lr, root)

        return step


@dataclass(frozen=True)
class TorchAdadelta(TorchRule):
    """`TorchAdadelta` (Zeiler) is::

    v = rho * v + (1 - rho) * g^2
    d = sqrt(u + eps) / sqrt(v + eps) * g
    u = rho * u + (1 - rho) * d^2
    w = w - lr * d
    """

    numbers: ClassVar[Mapping[str, float]] = {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0}

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return ("square_avg", "acc_delta")

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        rho, eps = numbers["rho"], numbers["eps"]

        def step(w: Array, g: Array, work: Array, square: Array, delta: Array) -> None:
            kind = w.dtype.type
            square *= kind(rho)
            addcmul(square, g, g, 1 - rho, work[0])
            root, move = np.add(square, kind(eps), out=work[0]), np.add(delta, kind(eps), out=work[1])
            np.sqrt(root, out=root)
            np.sqrt(move, out=move)
            move /= root
            move *= g
            delta *= kind(rho)
            addcmul(delta, move, move, 1 - rho, work[0])
            add(w, move, -numbers["lr"], out=w)

        return step


@dataclass(frozen=True)
class TorchRprop(TorchRule):
    """`TorchRprop` (Riedmiller and Braun) goes by the signs of gradients alone::

    step = step * (etaplus where the sign is the last one's, etaminus where it is the other, else 1)
    w = w - step * sign(g), where the sign is not the other; the next update then takes g for 0

    Elements that have never had a gradient keep step = 0, where PyTorch's is lr: their w stays in both.
    """

    numbers: ClassVar[Mapping[str, float]] = {
        "lr": 1e-2,
        "weight_decay": 0.0,
        "etaminus": 0.5,
        "etaplus": 1.2,
        "step_size_min": 1e-6,
        "step_size_max": 50.0,
    }

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return ("prev", "step_size")

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""

        def step(w: Array, g: Array, work: Array, last: Array, size: Array) -> None:
            kind = w.dtype.type
            first = max(numbers["lr"], numbers["step_size_min"])  # a warm-up may begin with lr 0
            np.copyto(size, kind(first), where=(size == 0) & (g != 0))
            agrees = np.multiply(g, last, out=work[0])
            turned = agrees < 0
            size *= np.where(agrees > 0, kind(numbers["etaplus"]), kind(1))
            size *= np.where(turned, kind(numbers["etaminus"]), kind(1))
            bounds = kind(numbers["step_size_min"]), kind(numbers["step_size_max"])
            np.clip(size, *bounds, out=size, where=size != 0)
            last[...] = g
            last[turned] = 0
            addcmul(w, np.sign(last), size, -1.0, work[0])

        return step
