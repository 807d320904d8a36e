"""Gradients of pushpulls are sent as they become ready, while the backward pass makes others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from elastic_ps.worker.script.api import Array
from elastic_ps.worker.script.step_buffer import StepBuffer

PORTION_BYTES = 4 << 20
"""Gradients that are sent together while others are not ready yet."""

_LEAST_PORTIONS = 2  # with one there is nothing to overlap


@dataclass(frozen=True)
class Pushpull:
    """A `Pushpull` is one key of a call, with one gradient and one out for each device."""

    key: str
    gradients: Sequence[Array]
    outs: Sequence[Array]

    @property
    def nbytes(self) -> int:
        """The bytes of one gradient."""
        return prod(self.gradients[0].shape) * np.dtype(self.gradients[0].dtype).itemsize


def send_as_ready(buffer: StepBuffer, number: int, late: Sequence[Pushpull]) -> bool:
    """Add and send what a step pushes, from the last key to the first; what closes the exchange sends the rest.

    Args:
        buffer: collects the gradients of the open exchange.
        number: number of the key store.
        late: the pushpulls in the order of the calls; nobody has written to the gradients since.

    Returns:
        Whether it was done; else nothing was, and all are to be added as one.
    """
    keys = [(number, item.key) for item in late]
    portions = list(_portions(late))
    if len(portions) < _LEAST_PORTIONS or not buffer.may_send_early(keys):
        return False
    for portion in portions:
        for item in portion:
            for array in item.gradients:
                array.settle([array], to_write=False)
            buffer.add((number, item.key), item.gradients)
        buffer.send_early(frozenset(keys), [(number, item.key) for item in portion])
    return True


def _portions(late: Sequence[Pushpull]) -> Iterator[list[Pushpull]]:
    portion: list[Pushpull] = []
    total = 0
    for item in reversed(late):
        portion.append(item)
        total += item.nbytes
        if total >= PORTION_BYTES:
            yield portion
            portion, total = [], 0
    if portion:
        yield portion
