"""By this rule weights add their gradients up; tests of key stores train with it."""

from dataclasses import dataclass

import numpy as np

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.gradient_sum import DType
from elastic_ps.optimizers.rule import Elementwise, Kernel


@dataclass(frozen=True)
class Accumulate(Elementwise):
    """`Accumulate` is w = w + rescale_grad * g; its state is a copy of w, in float32 whatever w is."""

    def state_names(self) -> tuple[str, ...]:
        """See `BuiltIn.state_names`: a copy of the weights."""
        return ("weight",)

    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """Return the copy, and a master copy where there is one."""
        return tuple((slot, np.dtype(np.float32)) for slot, _ in super().states(dtype))

    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """See `Elementwise.kernel`: add."""
        factor = constants.operand(hyper.rescale_grad)

        def step(w: Array, g: Array, work: Array, copy: Array) -> None:
            np.multiply(g, factor, out=work[0])
            w += work[0]
            copy[...] = w

        return step
