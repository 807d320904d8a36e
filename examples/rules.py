"""This is an update rule of one's own, for jobs with --optimizer-module examples.rules (docs/reference/mxnet.md).

The training script's side of it is an optimizer class with `elastic_rule = "examples.rules:SignDescent"`.
"""

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.optimizers import Rule
from elastic_ps.optimizers.gradient_sum import DType


class SignDescent(Rule):
    """This rule follows the sign of a mean: m = beta * m + (1 - beta) * g; w = w - lr * sign(m).

    Args:
        beta: how much of the mean of gradients a step keeps, from 0 to below 1.
    """

    def __init__(self, beta: float = 0.9):
        if not 0 <= beta < 1:
            raise ConfigurationError(f"beta must be from 0 to below 1, not {beta}")
        self.beta = beta

    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """Return the one state: the mean of gradients."""
        return (("mean", dtype),)

    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """Take one step; see `Rule.update`.

        Elements without a gradient so far, padding among them, stay as they are: sign(0) is 0.

        Args:
            value: flat values of a run of blocks.
            gradient: aggregated, before rescaling.
            states: by name.
            count: number of this update.
            hyper: rate and scale of it.
        """
        mean, kind = states["mean"], value.dtype.type
        mean *= kind(self.beta)
        mean += np.multiply(gradient, kind((1 - self.beta) * hyper.rescale_grad))
        value -= np.multiply(np.sign(mean), kind(hyper.lr))
