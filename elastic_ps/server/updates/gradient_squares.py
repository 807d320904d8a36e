"""This module measures aggregated gradients, block by block, and multiplies them by the factor that was decided."""

from dataclasses import replace

import numpy as np

from elastic_ps.core.gradient_norm import told_total
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Array
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.native.threads import in_parallel
from elastic_ps.optimizers.gradient_sum import CHUNK, GradientSum
from elastic_ps.server.blocks.block_store import ServerBlockStore


def squares(store: ServerBlockStore, segment: Run, aggregate: GradientSum | Rows) -> list[float]:
    """Return the sum of squares of each block's gradient, in float64; `NOT_FINITE` where it is not.

    Args:
        store: the store that holds the blocks.
        segment: blocks of one treatment.
        aggregate: their gradient.
    """
    found = [0.0] * segment[1]

    def work(low: int, high: int) -> None:
        for number in range(low, high):
            found[number] = _of_block(store, segment, number, aggregate)

    in_parallel(segment[1], 1, work)
    return [told_total(total) for total in found]


def scaled(aggregate: GradientSum | Rows, factor: float) -> GradientSum | Rows:
    """Return a gradient times a factor, rounded once more where it is not 1."""
    if factor == 1.0:
        return aggregate
    if isinstance(aggregate, Rows):
        with np.errstate(all="ignore"):  # of a step that is skipped they need be no numbers
            return Rows(aggregate.numbers, aggregate.values * aggregate.values.dtype.type(factor))
    return replace(aggregate, factor=aggregate.factor * factor)


def _of_block(store: ServerBlockStore, segment: Run, number: int, aggregate: GradientSum | Rows) -> float:
    block = segment[0] + number
    if isinstance(aggregate, Rows):
        return _squared(aggregate.between(store.row_updates.rows((block, 1))).values.reshape(-1))
    itemsize = aggregate.dtype.itemsize
    first = int(store.positions[block] - store.positions[segment[0]]) // itemsize
    last = first + int(store.extents[block]) // itemsize
    return sum(_squared(aggregate.part(low, min(low + CHUNK, last))) for low in range(first, last, CHUNK))


def _squared(values: Array) -> float:
    with np.errstate(all="ignore"):  # what is not finite is told as such
        wide = values.astype(np.float64)
        return float(wide @ wide)
