"""Gradients of the world's jobs: a sample's is one at its own entry, and stays exactly one however it travels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.compression import Compression
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.worker.script.numpy_array import NumpyArray

DENSE, ROWS, HALF, TWO_BITS, LARGEST = "dense", "rows", "float16", "2bit", "topk"
KINDS = (DENSE, ROWS, HALF, TWO_BITS, LARGEST)

BRAIN = "bfloat16"
"""Of jobs without servers alone; theirs are dense, or rounded to this or to `HALF`."""

INFINITE = (DENSE, ROWS, HALF, BRAIN)
"""Those that stay infinite as they travel: servers see that they overflow."""

EXACT = (DENSE, ROWS)
"""Those that travel as they are, of whatever size."""

_COMPRESSIONS = {
    HALF: {"type": "float16"},
    TWO_BITS: {"type": "2bit", "threshold": 1.0},
    LARGEST: {"type": "topk", "ratio": 0.25},  # of 40 samples: more than a batch has
}


class RowsArray(NumpyArray):
    """A `RowsArray` stores some rows of a gradient. See `Array`."""

    def stored_rows(self) -> Rows:
        """See `Array.stored_rows`."""
        rows = self.values.reshape(len(self.values), -1)
        numbers = np.flatnonzero(rows[:, 0]).astype(np.int64)
        return Rows(numbers, rows[numbers])


def gradient(kind: str, like: NDArray[np.floating], indices: Sequence[int], each: float) -> NumpyArray:
    """Return the gradient of some samples.

    Args:
        kind: of `KINDS`.
        like: the tensor, whose first axis is that of samples.
        indices: of those that it is of.
        each: a sample's; infinite: all skip the step.
    """
    values = np.zeros_like(like)
    values[list(indices)] = each
    return RowsArray(values) if kind == ROWS else NumpyArray(values)


def compression(kind: str) -> Compression | None:
    """Return how gradients of a kind travel; None: as they are."""
    return Compression.of(_COMPRESSIONS[kind]) if kind in _COMPRESSIONS else None
