"""Rules with a step size for each element, in the order of operations of MXNet 1.9.1's operators."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.optimizers.rule import Array, Elementwise, Kernel, Number, clip, limit


@dataclass(frozen=True)
class Adam(Elementwise):
    """MXNet's Adam (`adam_update`)::

    g = clip(rescale_grad * g + wd * w)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g^2
    w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ConfigurationError(
                f"epsilon must be above 0, not {self.epsilon}: elements without gradient become nan"
            )

    def _slots(self) -> tuple[str, ...]:
        return ("mean", "variance")

    def _kernel(self, count: int, hyper: Hyper, number: Number) -> Kernel:
        lr = number(hyper.lr * sqrt(1.0 - self.beta2**count) / (1.0 - self.beta1**count))
        wd, epsilon, beta1, beta2 = number(hyper.wd), number(self.epsilon), number(self.beta1), number(self.beta2)
        factor, bound = number(hyper.rescale_grad), limit(hyper, number)
        rest1, rest2 = number(1) - beta1, number(1) - beta2

        def kernel(w: Array, gradient: Array, g: Array, other: Array, m: Array, v: Array) -> None:
            np.multiply(gradient, factor, out=g)
            np.multiply(w, wd, out=other)
            g += other
            clip(g, bound)
            np.multiply(g, rest1, out=other)
            m *= beta1
            m += other
            np.multiply(g, g, out=g)
            g *= rest2
            v *= beta2
            v += g
            np.sqrt(v, out=g)
            g += epsilon
            np.multiply(m, lr, out=other)
            other /= g
            w -= other

        return kernel
