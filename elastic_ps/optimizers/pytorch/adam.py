"""These are PyTorch's optimizers with moving averages of the gradient and of its square, or its largest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.pytorch.arithmetic import SMALL_WEIGHT, addcdiv, addcmul, lerp
from elastic_ps.optimizers.pytorch.torch_rule import Numbers, TorchRule
from elastic_ps.optimizers.rule import Kernel

_BETAS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


@dataclass(frozen=True)
class _Moments(TorchRule):
    """`_Moments` keeps m = beta1 * m + (1 - beta1) * g and v = beta2 * v + (1 - beta2) * g^2.

    Args:
        decoupled: weight decay makes the weights smaller, instead of the gradient larger.
    """

    decoupled: bool = False

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return ("exp_avg", "exp_avg_sq")

    def decays_gradient(self, numbers: Numbers) -> bool:
        """See `TorchRule.decays_gradient`."""
        return not self.decoupled and super().decays_gradient(numbers)

    def _average(self, numbers: Numbers, w: Array, g: Array, work: Array, m: Array, v: Array) -> None:
        """Move both averages; before that make the weights smaller, where weight decay is decoupled.

        Args:
            numbers: of the parameter group.
            w: the weights.
            g: the gradient.
            work: memory that is used up.
            m: average of the gradient.
            v: average of its square.
        """
        kind = w.dtype.type
        if self.decoupled and numbers["weight_decay"] != 0:
            w *= kind(1 - numbers["lr"] * numbers["weight_decay"])
        lerp(m, g, 1 - numbers["beta1"], work)
        v *= kind(numbers["beta2"])
        addcmul(v, g, g, 1 - numbers["beta2"], work)


@dataclass(frozen=True)
class TorchAdam(_Moments):
    """`TorchAdam` (Kingma and Ba) and, decoupled, AdamW (Loshchilov and Hutter) are::

        w = w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)

    Args:
        amsgrad: the largest v so far stands for v.
    """

    amsgrad: bool = False

    numbers: ClassVar[Mapping[str, float]] = {"lr": 1e-3, "weight_decay": 0.0, **_BETAS}

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return (*super().state_names(), *(("max_exp_avg_sq",) if self.amsgrad else ()))

    def compiled(self, count: int, hyper: Hyper, constants: Constants) -> tuple[str, Sequence[Any]] | None:
        """See `Elementwise.compiled`."""
        if self.amsgrad:
            return None
        numbers = self.group(hyper)
        kind, weight = constants.dtype.type, 1 - numbers["beta1"]
        way = kind(weight) if abs(weight) < SMALL_WEIGHT else kind(weight) - kind(1)
        left = 1 - numbers["lr"] * numbers["weight_decay"] if self.decoupled else 1.0
        size, scale = self._size_and_scale(count, numbers)
        beta2 = numbers["beta2"]
        common = self.gradient_constants(numbers)
        return "torch_adam", (*common, left, way, beta2, 1 - beta2, scale, numbers["eps"], -size)

    def _size_and_scale(self, count: int, numbers: Numbers) -> tuple[float, float]:
        """Return the step's size, and what the square root is divided by."""
        return numbers["lr"] / (1 - numbers["beta1"] ** count), (1 - numbers["beta2"] ** count) ** 0.5

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        size, scale = self._size_and_scale(count, numbers)

        def step(w: Array, g: Array, work: Array, m: Array, v: Array, most: Array | None = None) -> None:
            self._average(numbers, w, g, work[0], m, v)
            if most is not None:
                np.maximum(most, v, out=most)
            root = np.sqrt(v if most is None else most, out=work[0])
            root /= w.dtype.type(scale)
            root += w.dtype.type(numbers["eps"])
            addcdiv(w, m, root, -size, root)

        return step


@dataclass(frozen=True)
class TorchNAdam(_Moments):
    """`TorchNAdam` (Dozat) is Adam with Nesterov's momentum, whose strength mu grows with the updates::

    w = w - lr * (1 - mu_t) / (1 - mu_1 ... mu_t) * g / d - lr * mu_t+1 / (1 - mu_1 ... mu_t+1) * m / d
    d = sqrt(v / (1 - beta2^t)) + eps
    """

    numbers: ClassVar[Mapping[str, float]] = {"lr": 2e-3, "weight_decay": 0.0, "momentum_decay": 4e-3, **_BETAS}

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        lr, beta1, decay = numbers["lr"], numbers["beta1"], numbers["momentum_decay"]
        mu, next_mu = _nesterov(beta1, decay, count), _nesterov(beta1, decay, count + 1)
        product = nesterov_product(beta1, decay, count)
        sizes = -lr * (1.0 - mu) / (1.0 - product), -lr * next_mu / (1.0 - product * next_mu)
        correction = 1 - numbers["beta2"] ** count

        def step(w: Array, g: Array, work: Array, m: Array, v: Array) -> None:
            self._average(numbers, w, g, work[0], m, v)
            root = np.divide(v, w.dtype.type(correction), out=work[0])
            np.sqrt(root, out=root)
            root += w.dtype.type(numbers["eps"])
            addcdiv(w, g, root, sizes[0], work[1])
            addcdiv(w, m, root, sizes[1], work[1])

        return step


def _nesterov(beta1: float, decay: float, count: int) -> float:
    return float(beta1 * (1.0 - 0.5 * (0.96 ** (count * decay))))


@lru_cache(maxsize=64)
def _last_product(beta1: float, decay: float) -> list[tuple[int, np.float32]]:
    """Return how many updates were asked for last, and their product, in a list of one whose item is replaced."""
    return [(0, np.float32(1))]


def nesterov_product(beta1: float, decay: float, count: int) -> float:
    """Return the product of mu of the first `count` updates, as PyTorch has it: in float32, update by update.

    Args:
        beta1: the largest mu.
        decay: how fast mu grows, `momentum_decay`.
        count: of updates.
    """
    last = _last_product(beta1, decay)
    known = last[0]  # once: other threads replace it
    done, product = known if known[0] <= count else (0, np.float32(1))
    for number in range(done + 1, count + 1):
        before, product = product, product * np.float32(_nesterov(beta1, decay, number))
        if product == before and decay >= 0:  # and it stays so, as mu only grows: 0, or the least that there is
            break
    last[0] = count, product
    return float(product)


@dataclass(frozen=True)
class TorchRAdam(_Moments):
    """`TorchRAdam` (Liu and others) is Adam whose step is adapted only where v has seen enough updates."""

    numbers: ClassVar[Mapping[str, float]] = {"lr": 1e-3, "weight_decay": 0.0, **_BETAS}

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        lr, eps, beta2 = numbers["lr"], numbers["eps"], numbers["beta2"]
        corrections = 1 - numbers["beta1"] ** count, 1 - beta2**count
        most = 2 / (1 - beta2) - 1
        length = most - 2 * count * (beta2**count) / corrections[1]
        rectified = length > 5.0
        factor = ((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) ** 0.5 if rectified else 1.0

        def step(w: Array, g: Array, work: Array, m: Array, v: Array) -> None:
            kind = w.dtype.type
            self._average(numbers, w, g, work[0], m, v)
            move = np.divide(m, kind(corrections[0]), out=work[0])
            move *= kind(lr)
            if rectified:
                root = np.sqrt(v, out=work[1])
                root += kind(eps)
                np.divide(kind(1), root, out=root)  # as PyTorch divides a number by a tensor
                root *= kind(corrections[1] ** 0.5)
                move *= root
                move *= kind(factor)
            w -= move

        return step


@dataclass(frozen=True)
class TorchAdamax(TorchRule):
    """`TorchAdamax` (Kingma and Ba, section 7.1) is::

    m = beta1 * m + (1 - beta1) * g
    u = max(beta2 * u, abs(g) + eps)
    w = w - lr / (1 - beta1^t) * m / u

    Elements that have never had a gradient keep u = 0, where PyTorch's becomes eps: their w stays in both.
    """

    numbers: ClassVar[Mapping[str, float]] = {"lr": 2e-3, "weight_decay": 0.0, **_BETAS}

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`."""
        return ("exp_avg", "exp_inf")

    def step(self, count: int, numbers: Numbers) -> Kernel:
        """See `TorchRule.step`."""
        size = numbers["lr"] / (1 - numbers["beta1"] ** count)

        def step(w: Array, g: Array, work: Array, m: Array, u: Array) -> None:
            kind = w.dtype.type
            lerp(m, g, 1 - numbers["beta1"], work[0])
            touched = (g != 0) | (u != 0)
            norm = np.abs(g, out=work[0])
            norm += kind(numbers["eps"])
            u *= kind(numbers["beta2"])
            np.maximum(u, norm, out=u, where=touched)
            addcdiv(w, m, np.where(touched, u, kind(1)), -size, work[0])

        return step
