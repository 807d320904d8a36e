"""These rules have a step size for each element, and the order of operations of a framework's operators."""

# The order is that of the operators of MXNet 1.9.1, which the comment of each class names.

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.rule import Elementwise, Kernel, clip


@dataclass(frozen=True)
class RMSProp(Elementwise):  # rmsprop_update, rmspropalex_update where centered
    """`RMSProp` (centered: Graves 2013, equations 38 to 45) is::

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
class AdaGrad(Elementwise):  # array arithmetic in Python
    """`AdaGrad` (Duchi and others) is::

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
        # Alone among the rules this one takes a bound of 0 for a bound.
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
class Ftrl(Elementwise):  # ftrl_update
    """`Ftrl` (McMahan and others, "Ad Click Prediction", algorithm 1) is::

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
