"""Adam and AdamW divide each element's step by moving averages, in a framework's order of operations."""

# The order is that of the operators of MXNet 1.9.1, which the comment of each class names.

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any, ClassVar

import numpy as np

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.rule import Elementwise, Kernel, clip


def bias_corrected(lr: float, beta1: float, beta2: float, count: int) -> float:
    """Return Adam's learning rate of an update (Kingma and Ba, end of section 2), in doubles.

    Args:
        lr: the step's.
        beta1: of the gradient's moving average.
        beta2: of its square's.
        count: number of the update, from 1.
    """
    return lr * (sqrt(1.0 - beta2**count) / (1.0 - beta1**count))


@dataclass(frozen=True)
class _Moments(Elementwise):
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    divisor: ClassVar[str] = "epsilon"

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`: moving averages of the gradient and of its square."""
        return ("mean", "variance")

    def _averages(self, constants: Constants, rests: tuple[Any, Any], square_first: bool) -> Kernel:
        """Return averages(g, other, m, v), which updates both moments by the gradient g and uses up `other`.

        Args:
            rests: 1 - beta1 and 1 - beta2 as the operator rounds them.
            square_first: (1 - beta2) * (g * g), where Adam's operator has ((1 - beta2) * g) * g.
        """
        beta1, beta2 = constants.argument(self.beta1), constants.argument(self.beta2)
        rest1, rest2 = rests

        def averages(g: Array, other: Array, m: Array, v: Array) -> None:
            np.multiply(g, rest1, out=other)
            m *= beta1
            m += other
            np.multiply(g, g if square_first else rest2, out=other)
            other *= rest2 if square_first else g
            v *= beta2
            v += other

        return averages

    def _numbers(
        self, rate: Any, factor: Any, rests: tuple[Any, Any], hyper: Hyper, constants: Constants
    ) -> tuple[Any, ...]:
        """Return the constants of the compiled rule."""
        wd, beta1, beta2 = (constants.argument(x) for x in (hyper.wd, self.beta1, self.beta2))
        bound = constants.bound(hyper.clip_gradient)
        least = constants.argument(self.epsilon)
        return rate, wd, factor, inf if bound is None else bound, beta1, beta2, *rests, least


@dataclass(frozen=True)
class Adam(_Moments):  # adam_update
    """`Adam` (Kingma and Ba, algorithm 1) is::

    g = clip(rescale_grad * g + wd * w)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g^2
    w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)
    """

    lazy_update: bool = False

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """Return whether the script asked for it (`lazy_update`)."""
        return self.lazy_update

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`."""
        lr = constants.argument(bias_corrected(hyper.lr, self.beta1, self.beta2, count))
        wd, epsilon = constants.argument(hyper.wd), constants.argument(self.epsilon)
        factor, bound = constants.argument(hyper.rescale_grad), constants.bound(hyper.clip_gradient)
        one = constants.argument(1.0)
        rests = one - constants.argument(self.beta1), one - constants.argument(self.beta2)
        averages = self._averages(constants, rests, square_first=False)

        def step(w: Array, gradient: Array, work: Array, m: Array, v: Array) -> None:
            g, other, _ = work
            np.multiply(gradient, factor, out=g)
            np.multiply(w, wd, out=other)
            g += other
            clip(g, bound)
            averages(g, other, m, v)
            np.sqrt(v, out=g)
            g += epsilon
            np.multiply(m, lr, out=other)
            other /= g
            w -= other

        return step

    def compiled(self, count: int, hyper: Hyper, constants: Constants) -> tuple[str, Sequence[Any]] | None:
        """See `Elementwise.compiled`."""
        lr = constants.argument(bias_corrected(hyper.lr, self.beta1, self.beta2, count))
        beta1, beta2, one = (constants.argument(x) for x in (self.beta1, self.beta2, 1.0))
        rests = one - beta1, one - beta2
        return "adam", self._numbers(lr, constants.argument(hyper.rescale_grad), rests, hyper, constants)


@dataclass(frozen=True)
class AdamW(_Moments):  # contrib.adamw_update
    """`AdamW` is Adam with decoupled weight decay (Loshchilov and Hutter)::

        g = clip(rescale_grad * g)
        m, v as in Adam
        eta = lr, times sqrt(1 - beta2^t) / (1 - beta1^t) where correct_bias
        w = w - eta * (m / (sqrt(v) + epsilon) + wd * w)

    An update with rescale_grad 0, inf or nan is left out (a skipped step of loss scaling).
    """

    epsilon: float = 1e-6
    correct_bias: bool = True

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`."""
        rate = bias_corrected(hyper.lr, self.beta1, self.beta2, count) if self.correct_bias else hyper.lr
        eta, wd, epsilon = constants.argument(rate), constants.argument(hyper.wd), constants.argument(self.epsilon)
        factor, bound = constants.listed(hyper.rescale_grad), constants.bound(hyper.clip_gradient)
        rests = constants.complement(self.beta1), constants.complement(self.beta2)
        averages = self._averages(constants, rests, square_first=True)

        def step(w: Array, gradient: Array, work: Array, m: Array, v: Array) -> None:
            g, other, _ = work
            np.multiply(gradient, factor, out=g)
            clip(g, bound)
            averages(g, other, m, v)
            np.sqrt(v, out=g)
            g += epsilon
            np.divide(m, g, out=other)
            np.multiply(w, wd, out=g)
            other += g
            other *= eta
            w -= other

        def skip(*_: Array) -> None:
            """Leave everything as it is."""

        return step if self._counts(hyper) else skip

    def compiled(self, count: int, hyper: Hyper, constants: Constants) -> tuple[str, Sequence[Any]] | None:
        """See `Elementwise.compiled`."""
        if not self._counts(hyper):
            return None
        rate = bias_corrected(hyper.lr, self.beta1, self.beta2, count) if self.correct_bias else hyper.lr
        rests = constants.complement(self.beta1), constants.complement(self.beta2)
        eta, factor = constants.argument(rate), constants.listed(hyper.rescale_grad)
        return "adamw", self._numbers(eta, factor, rests, hyper, constants)

    def _counts(self, hyper: Hyper) -> bool:
        return bool(hyper.rescale_grad) and isfinite(hyper.rescale_grad)
