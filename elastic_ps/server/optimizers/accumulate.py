"""A user's rule, as an example: the rule of MXNet's `Test` optimizer, which MXNet's own kvstore tests train with.

python -m elastic_ps.server --optimizer-module elastic_ps.server.optimizers.accumulate ...
OptimizerSpec("elastic_ps.server.optimizers.accumulate:Accumulate")
"""

import numpy as np

from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.server.contributions import DType
from elastic_ps.server.optimizers.rule import Rule


class Accumulate(Rule):
    """w = w + rescale_grad * g; the state is a copy of w."""

    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """The copy."""
        return (("weight", dtype),)

    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """Add."""
        value += np.multiply(gradient, value.dtype.type(hyper.rescale_grad))
        states["weight"][...] = value
