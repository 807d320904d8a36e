"""These rules are gradient descent with and without momentum, in the order of operations of a framework's operators."""

# The order is that of the operators of MXNet 1.9.1, which the comment of each class names.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.rule import Elementwise, Kernel, clip


@dataclass(frozen=True)
class _Momentum(Elementwise):
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not self.momentum >= 0:
            raise ConfigurationError(f"momentum must be 0 or more, not {self.momentum}")

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`: the velocity, where there is one."""
        return ("momentum",) if self.momentum else ()


@dataclass(frozen=True)
class SGD(_Momentum):  # multi_sgd_update, multi_sgd_mom_update, and their mp_ forms
    """`SGD` is gradient descent, with momentum where it is given::

    m = momentum * m - lr * wd * w - lr * clip(rescale_grad * g)
    w = w + m
    """

    lazy_update: bool = False

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """Return whether the script asked for it (`lazy_update`), or it makes no difference."""
        return self.lazy_update or (not self.momentum and not hyper.wd)

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`; without momentum m is 0 before it."""
        lr, decay = constants.listed(hyper.lr), constants.listed(hyper.lr) * constants.listed(hyper.wd)
        momentum, factor = constants.argument(self.momentum), constants.argument(hyper.rescale_grad)
        bound = constants.bound(hyper.clip_gradient)

        def step(w: Array, g: Array, work: Array, m: Array | None = None) -> None:
            descent, decayed = work[0], work[1]
            _descend(g, lr, factor, bound, out=descent)
            np.multiply(w, decay, out=decayed)
            if m is None:
                m = work[2]
                m.fill(0)
            else:
                m *= momentum
            m -= decayed
            m -= descent
            w += m

        return step

    def compiled(self, count: int, hyper: Hyper, constants: Constants) -> tuple[str, Sequence[Any]] | None:
        """See `Elementwise.compiled`."""
        lr, decay = constants.listed(hyper.lr), constants.listed(hyper.lr) * constants.listed(hyper.wd)
        momentum, factor = constants.argument(self.momentum), constants.argument(hyper.rescale_grad)
        bound = constants.bound(hyper.clip_gradient)
        if bound is None:
            return ("sgd_momentum" if self.momentum else "sgd"), (lr * factor, decay, momentum)
        return ("sgd_momentum_clipped", (lr, decay, momentum, factor, bound)) if self.momentum else None


@dataclass(frozen=True)
class NAG(_Momentum):  # nag_mom_update, mp_nag_mom_update; sgd_update without momentum
    """`NAG` is Nesterov's accelerated gradient::

        m = momentum * m
        w' = w - m + (momentum + 1) * (m - lr * (clip(rescale_grad * g) + wd * w))
        m = m - lr * (clip(rescale_grad * g) + wd * w')

    The second line changes the weight before the third reads it, as an update in place does.
    """

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`."""
        lr, wd = constants.argument(hyper.lr), constants.argument(hyper.wd)
        momentum, factor = constants.argument(self.momentum), constants.argument(hyper.rescale_grad)
        bound = constants.bound(hyper.clip_gradient)
        one = constants.argument(1.0)

        def plain(w: Array, g: Array, work: Array) -> None:
            _descend(g, lr, factor, bound, out=work[0])
            w *= one - lr * wd
            w -= work[0]

        def step(w: Array, gradient: Array, work: Array, m: Array) -> None:
            g, new, slope = work
            np.multiply(gradient, factor, out=g)
            clip(g, bound)
            m *= momentum
            np.multiply(w, wd, out=slope)
            slope += g
            slope *= lr
            np.subtract(m, slope, out=new)
            new *= momentum + one
            w -= m
            w += new
            np.multiply(w, wd, out=slope)
            slope += g
            slope *= lr
            m -= slope

        return step if self.momentum else plain


def _descend(g: Array, lr: Any, factor: Any, bound: Any, out: Array) -> None:
    """Set `out` to lr * clip(factor * g); the constants are multiplied first where no clip comes between them."""
    if bound is None:
        np.multiply(g, lr * factor, out=out)
    else:
        np.multiply(g, factor, out=out)
        clip(out, bound)
        out *= lr
