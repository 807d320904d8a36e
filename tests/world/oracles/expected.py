"""An `Expected` says what a job's parameters must be after each step, by the order of its samples alone."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.data_order import permutation
from tests.world.faults.job_draw import BY_UPDATES, PRELOADED, SHORT, JobDraw

EPSILON = 1e-7
"""Beside the sum of squares, of the optimizer that has a state."""

NEAR = 1e-3


class Course(NamedTuple):
    """A `Course` is what becomes of a tensor. Its arrays tell it by the number of steps.

    Attributes:
        values: float64 of shape (steps + 1, samples): the parameters.
        squares: float64 of shape (steps + 1, samples): sums of the squares of gradients.
        updates: int64 of shape (steps + 1,): how often the optimizer has updated it.
        pushed: bool of shape (steps,): whether scripts push a gradient in the step.
    """

    values: NDArray[np.float64]
    squares: NDArray[np.float64]
    updates: NDArray[np.int64]
    pushed: NDArray[np.bool_]


class Expected:
    """See the module.

    Args:
        draw: of the job.
    """

    def __init__(self, draw: JobDraw):
        self._draw = draw
        self.course = cache(self._course)
        self._gradients = cache(self._summed)
        self._updating = cache(self._store_updates)

    def is_of(self, array: NDArray[np.floating], tensor: int, version: int) -> bool:
        """Return whether a tensor of a version of a sync job has these values."""
        return near(array, self.course(tensor).values[self.step(version)])

    def is_last(self, array: NDArray[np.floating], tensor: int) -> bool:
        """Return whether a tensor has these values at the job's end."""
        return near(array, self.course(tensor).values[-1])

    def may_be(self, array: NDArray[np.floating], tensor: int) -> bool:
        """Return whether each sample's entry has a value that it comes to have, in whatever order steps are made."""
        entries = array.reshape(len(array), -1).T[:, None]
        return bool((np.abs(self.course(tensor).values - entries).min(axis=1) < NEAR).all())

    def step(self, version: int) -> int:
        """Return how many steps a sync job has made at a version."""
        return version // self._draw.stores

    def _course(self, tensor: int) -> Course:
        draw = self._draw
        pushed = np.array([self._is_pushed(tensor, step) for step in range(draw.steps)])
        gradients = np.where((pushed & ~self._skipped())[:, None], self._gradients(), 0.0)
        before = PRELOADED[1] if draw.is_preloaded(tensor) else 0.0
        squares = _from_zero(np.cumsum(gradients**2, axis=0)) + before
        scale = np.sqrt(squares[1:] + EPSILON) if draw.adaptive else 1.0
        rates = np.array([self._rate(tensor, step) for step in range(draw.steps)])
        values = np.cumsum(rates[:, None] * gradients / scale, axis=0)
        return Course(_from_zero(values), squares, self._counts(tensor), pushed)

    def _is_pushed(self, tensor: int, step: int) -> bool:
        draw = self._draw
        return step // draw.steps_per_epoch >= draw.begins(tensor) and not draw.leaves_out(tensor, step)

    def _skipped(self) -> NDArray[np.bool_]:
        return np.array([self._draw.has_overflow(step) for step in range(self._draw.steps)])

    def _counts(self, tensor: int) -> NDArray[np.int64]:
        """Return how often a tensor has been updated, by the number of steps."""
        made = [self._is_pushed(tensor, step) for step in range(self._draw.steps)] & ~self._skipped()
        before = PRELOADED[0] if self._draw.is_preloaded(tensor) else 0
        return _from_zero(np.cumsum(made)) + before

    def _rate(self, tensor: int, step: int) -> float:
        """Return the rate of a step, which the chief takes from the most updated tensor of the store, or the step."""
        draw = self._draw
        number = self._updating(draw.store_of(tensor))[step] if draw.schedule == BY_UPDATES else step
        return draw.rate(int(number)) * draw.scale

    def _store_updates(self, store: int) -> NDArray[np.int64]:
        """Return the number of updates of a store before each step, which is that of its most updated tensor."""
        draw = self._draw
        tensors = [tensor for tensor in range(draw.tensors + bool(draw.grows)) if draw.store_of(tensor) == store]
        counts = np.array([self._counts(tensor) for tensor in tensors])
        pushed = np.array([[self._is_pushed(tensor, step) for step in range(draw.steps)] for tensor in tensors])
        coming = np.where(pushed, counts[:, :-1] + 1, counts[:, :-1]).max(axis=0)
        number: NDArray[np.int64] = np.maximum(coming - 1, 0)
        return number

    def _summed(self) -> NDArray[np.float64]:
        """Return the gradient of each step, of shape (steps, samples)."""
        draw = self._draw
        found = np.zeros((draw.steps, draw.samples))
        for epoch in range(draw.epochs):
            order = np.arange(draw.samples) if draw.given else permutation(draw.seed, epoch, draw.samples)
            for step in range(draw.steps_per_epoch):
                high = (step + 1) * draw.batch
                chosen = np.arange(step * draw.batch, min(high, draw.samples) if draw.last == SHORT else high)
                each = 1 / len(chosen) if draw.mean else draw.batch / len(chosen)  # short steps count in full
                found[epoch * draw.steps_per_epoch + step, order[chosen % draw.samples]] = each
        return found


def near(array: NDArray[np.floating], expected: NDArray[np.floating]) -> bool:
    """Return whether all elements of each sample's entry are what they should be, but for rounding."""
    return bool((np.abs(array.reshape(len(array), -1).T - expected) < NEAR).all())


def _from_zero(table: NDArray) -> NDArray:
    """Return a table by the number of steps, with that of none before it."""
    return np.concatenate((np.zeros_like(table[:1]), table))
