"""Gradient descent with and without momentum, in the order of operations of MXNet 1.9.1's operators."""

from dataclasses import dataclass

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.optimizers.rule import Array, Elementwise, Kernel, Number, clip, limit


@dataclass(frozen=True)
class SGD(Elementwise):
    """MXNet's SGD (`multi_sgd_update`, `multi_sgd_mom_update` and their mp_ forms)::

    m = momentum * m - lr * wd * w - lr * clip(rescale_grad * g)
    w = w + m
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not self.momentum >= 0:
            raise ConfigurationError(f"momentum must be 0 or more, not {self.momentum}")

    def _slots(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def _kernel(self, count: int, hyper: Hyper, number: Number) -> Kernel:
        lr, decay, momentum = number(hyper.lr), number(hyper.lr) * number(hyper.wd), number(self.momentum)
        bound, factor = limit(hyper, number), number(hyper.rescale_grad)
        # MXNet multiplies the two factors first where no clipping comes between them; the last bit depends on it.
        folded = lr * factor

        def kernel(w: Array, g: Array, step: Array, other: Array, m: Array | None = None) -> None:
            np.multiply(w, decay, out=other)
            if bound is None:
                np.multiply(g, folded, out=step)
            else:
                np.multiply(g, factor, out=step)
                clip(step, bound)
                step *= lr
            if m is None:
                np.subtract(0, other, out=other)
                other -= step
                w += other
            else:
                m *= momentum
                m -= other
                m -= step
                w += m

        return kernel
