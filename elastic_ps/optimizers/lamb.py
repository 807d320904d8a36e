"""LAMB scales its step by the norms of whole tensors."""

# The order of operations, and the types of the steps between, are those of MXNet 1.9.1's multi_lamb_update on a CPU.

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.gradient_sum import CHUNK, GradientSum
from elastic_ps.optimizers.rule import MASTER, BuiltIn, Kernel, chunks, clip

_WIDE: dict[type, tuple[type, type]] = {
    np.float16: (np.float32, np.float16),
    np.float32: (np.float64, np.float64),
    np.float64: (np.float64, np.float64),
}
"""Types in which the square root and the quotient are taken, by the tensor's."""


@dataclass(frozen=True)
class LAMB(BuiltIn):
    """`LAMB` (You and others, algorithm 2) is::

        g = clip(rescale_grad * g)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        d = m' / (sqrt(v') + epsilon) + wd * w     with m' = m / (1 - beta1^t), v' alike, where bias_correction
        r = norm(w), at least lower_bound and at most upper_bound
        w = w - lr * r / norm(d) * d               where both norms are above 0, else w - lr * d

    The norms are sums in float32 from the first element to the last; under
    multi_precision the weights' is that of the float16 values.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    lower_bound: float | None = None
    upper_bound: float | None = None
    bias_correction: bool = True

    divisible: ClassVar[bool] = False
    divisor: ClassVar[str] = "epsilon"

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`: moving averages of the gradient and of its square."""
        return ("mean", "variance")

    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """See `Rule.update`: one step of one whole tensor."""
        target = states.get(MASTER, value)
        mean, variance = states["mean"], states["variance"]
        constants = Constants(target.dtype)
        direction = np.empty(len(target), np.float32)
        with np.errstate(all="ignore"):
            find = self._direction(self.begin_num_update + count, hyper, constants)
            for part, grad, work in chunks(target, GradientSum([gradient])):
                find(target[part], grad, work, mean[part], variance[part], direction[part])
            rate = constants.listed(hyper.lr) * target.dtype.type(self._trust(_norm(value), _norm(direction)))
            for part, _, work in chunks(target, GradientSum([gradient])):
                np.multiply(direction[part].astype(target.dtype, copy=False), rate, out=work[0])
                target[part] -= work[0]
        if target is not value:
            value[...] = target

    def _direction(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        beta1, beta2, one = (constants.argument(x) for x in (self.beta1, self.beta2, 1.0))
        correction1, correction2 = one - _power(beta1, count), one - _power(beta2, count)
        epsilon, wd = constants.argument(self.epsilon), constants.listed(hyper.wd)
        factor, bound = constants.argument(hyper.rescale_grad), constants.bound(hyper.clip_gradient)
        # The operator calls C's sqrt, a double's: for float32 the whole quotient is one of doubles.
        root, quotient = _WIDE[constants.dtype.type]

        def find(w: Array, gradient: Array, work: Array, m: Array, v: Array, out: Array) -> None:
            g, other, _ = work
            np.multiply(gradient, factor, out=g)
            clip(g, bound)
            np.multiply(g, one - beta1, out=other)
            m *= beta1
            m += other
            np.multiply(g, one - beta2, out=other)
            other *= g
            v *= beta2
            v += other
            if self.bias_correction:
                np.divide(m, correction1, out=g)
                np.divide(v, correction2, out=other)
            else:
                g[...], other[...] = m, v
            ratio = np.sqrt(other, dtype=root)
            ratio += epsilon
            ratio = ratio.astype(quotient, copy=False)
            np.divide(g, ratio, out=ratio)
            np.multiply(w, wd, out=other)
            ratio += other
            out[...] = ratio

        return find

    def _trust(self, weights: Any, direction: Any) -> Any:
        """Return the trust ratio, of the norms of the weights and of the step."""
        if self.lower_bound and self.lower_bound > 0:
            weights = max(weights, np.float32(self.lower_bound))
        if self.upper_bound and self.upper_bound > 0:
            weights = min(weights, np.float32(self.upper_bound))
        return weights / direction if weights != 0 and direction != 0 else np.float32(1)


def _power(base: Any, exponent: int) -> Any:
    return type(base)(float(base) ** exponent)


def _norm(array: Array) -> Any:
    """Return the Euclidean norm; accumulate adds one element after the other, where a plain sum would add in pairs."""
    total = np.float32(0)
    for low in range(0, len(array), CHUNK):
        part = array[low : low + CHUNK]
        squares = (part * part).astype(np.float32, copy=False)
        squares[0] += total
        total = np.add.accumulate(squares, out=squares)[-1]
    return np.sqrt(total)
