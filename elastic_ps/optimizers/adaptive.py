"""These rules have a step size for each element, and the order of operations of MXNet 1.9.1's operators."""

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
    """Return Adam's learning rate of an update (Kingma and Ba, end of section 2), in doubles as MXNet has it.

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
class Adam(_Moments):
    """`Adam` does what MXNet's Adam does (`adam_update`)::

    g = clip(rescale_grad * g + wd * w)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g^2
    w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)
    """

    lazy_update: bool = False

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """Return what MXNet's argument `lazy_update` says."""
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
class AdamW(_Moments):
    """`AdamW` is Adam with decoupled weight decay (Loshchilov and Hutter), MXNet's operator `contrib.adamw_update`::

        g = clip(rescale_grad * g)
        m, v as in Adam
        eta = lr, times sqrt(1 - beta2^t) / (1 - beta1^t) where correct_bias
        w = w - eta * (m / (sqrt(v) + epsilon) + wd * w)

    As in the operator, an update with rescale_grad 0, inf or nan is left out (a skipped step of loss scaling).
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


@dataclass(frozen=True)
class RMSProp(Elementwise):
    """`RMSProp` does what MXNet's does (`rmsprop_update`; centered: `rmspropalex_update`, Graves 2013, eq. 38 to 45)::

        g = clip(rescale_grad * g + wd * w)
        n = (1 - gamma1) * g^2 + gamma1 * n
        w = clip(w - lr * g / sqrt(n + epsilon), clip_weights)

    centered::

        a = (1 - gamma1) * g + gamma1 * a
        delta = gamma2 * delta - lr * g / sqrt(n - a^2 + epsilon)
        w = clip(w + delta, clip_weights)
    """

    gamma1: float = 0.9
    gamma2: float = 0.9
    epsilon: float = 1e-8
    centered: bool = False
    clip_weights: float | None = None

    divisor: ClassVar[str] = "epsilon"

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`: averages of the squared gradient and, centered, of the gradient; the last step."""
        return ("n", "g", "delta") if self.centered else ("n",)

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`."""
        lr, epsilon = constants.argument(hyper.lr), constants.argument(self.epsilon)
        weight_bound = constants.bound(self.clip_weights)
        slope = self._slope(hyper, constants)

        def step(w: Array, gradient: Array, work: Array, n: Array) -> None:
            g, other, _ = work
            slope(w, gradient, work, n)
            np.add(n, epsilon, out=other)
            np.sqrt(other, out=other)
            g /= other
            g *= lr
            w -= g
            clip(w, weight_bound)

        return self._centered(hyper, constants) if self.centered else step

    def _centered(self, hyper: Hyper, constants: Constants) -> Kernel:
        lr, epsilon = constants.argument(hyper.lr), constants.argument(self.epsilon)
        weight_bound = constants.bound(self.clip_weights)
        gamma1, gamma2 = constants.argument(self.gamma1), constants.argument(self.gamma2)
        slope, rest = self._slope(hyper, constants), constants.argument(1.0) - gamma1

        def step(w: Array, gradient: Array, work: Array, n: Array, average: Array, delta: Array) -> None:
            g, other, _ = work
            slope(w, gradient, work, n)
            np.multiply(g, rest, out=other)
            average *= gamma1
            average += other
            np.multiply(average, average, out=other)
            np.subtract(n, other, out=other)
            other += epsilon
            np.sqrt(other, out=other)
            g *= lr
            g /= other
            delta *= gamma2
            delta -= g
            w += delta
            clip(w, weight_bound)

        return step

    def _slope(self, hyper: Hyper, constants: Constants) -> Kernel:
        """Return slope(w, gradient, work, n), which sets work[0] to g, updates n by it, and uses up work[1]."""
        gamma1, wd = constants.argument(self.gamma1), constants.argument(hyper.wd)
        rest, graves = constants.argument(1.0) - gamma1, self.centered
        factor, bound = constants.argument(hyper.rescale_grad), constants.bound(hyper.clip_gradient)

        def slope(w: Array, gradient: Array, work: Array, n: Array) -> None:
            g, other, _ = work
            np.multiply(gradient, factor, out=g)
            np.multiply(w, wd, out=other)
            g += other
            clip(g, bound)
            np.multiply(g, rest if graves else g, out=other)  # the two operators multiply in different orders
            other *= g if graves else rest
            n *= gamma1
            n += other

        return slope


@dataclass(frozen=True)
class AdaGrad(Elementwise):
    """`AdaGrad` does what MXNet's does (array arithmetic in Python)::

    g = clip(rescale_grad * g)
    history = history + g^2
    w = w + (g / sqrt(history + eps) + wd * w) * -lr
    """

    eps: float = 1e-7

    divisor: ClassVar[str] = "eps"

    def state_names(self) -> tuple[str, ...]:
        """Sum of the squared gradients."""
        return ("history",)

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """Return whether it makes no difference."""
        return not hyper.wd

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`."""
        lr, wd, eps, factor = (constants.operand(x) for x in (-hyper.lr, hyper.wd, self.eps, hyper.rescale_grad))
        # Alone among MXNet's rules this one takes a bound of 0 for a bound.
        bound = None if hyper.clip_gradient is None else constants.argument(hyper.clip_gradient)

        def step(w: Array, gradient: Array, work: Array, history: Array) -> None:
            g, other, _ = work
            np.multiply(gradient, factor, out=g)
            clip(g, bound)
            np.multiply(g, g, out=other)
            history += other
            np.add(history, eps, out=other)
            np.sqrt(other, out=other)
            g /= other
            np.multiply(w, wd, out=other)
            g += other
            g *= lr
            w += g

        return step


@dataclass(frozen=True)
class Ftrl(Elementwise):
    """`Ftrl` does what MXNet's does (`ftrl_update`; McMahan and others, "Ad Click Prediction", algorithm 1)::

    g = clip(rescale_grad * g)
    z = z + g - (sqrt(n + g^2) - sqrt(n)) * w / lr
    n = n + g^2
    w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd) * (abs(z) > lamda1)
    """

    lamda1: float = 0.01
    beta: float = 1.0

    divisor: ClassVar[str] = "beta"

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`: the dual weights and the sum of the squared gradients."""
        return ("z", "n")

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`."""
        lr, wd, lamda1, beta = (constants.argument(x) for x in (hyper.lr, hyper.wd, self.lamda1, self.beta))
        factor, bound = constants.argument(hyper.rescale_grad), constants.bound(hyper.clip_gradient)

        def step(w: Array, gradient: Array, work: Array, z: Array, n: Array) -> None:
            g, other, square = work
            np.multiply(gradient, factor, out=g)
            clip(g, bound)
            np.multiply(g, g, out=square)
            np.sqrt(n, out=other)
            n += square
            np.sqrt(n, out=square)
            np.subtract(square, other, out=other)
            other *= w
            other /= lr
            g -= other
            z += g
            square += beta
            square /= lr
            square += wd
            np.sign(z, out=w)
            w *= lamda1
            w -= z
            w /= square
            np.abs(z, out=other)
            w *= other > lamda1

        return step
