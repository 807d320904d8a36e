"""Gradients of the world's jobs: a sample's is one at its own entry, and stays exactly one however it travels."""

from collections.abc import Sequence

import numpy as np

from elastic_ps.core.compression import Compression
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.worker.script.numpy_array import NumpyArray

DENSE, ROWS, HALF, TWO_BITS, LARGEST = "dense", "rows", "float16", "2bit", "topk"
KINDS = (DENSE, ROWS, HALF, TWO_BITS, LARGEST)

BRAIN = "bfloat16"
"""Of jobs without servers alone; theirs are dense, or rounded to this or to `HALF`."""

INFINITE = (DENSE, ROWS, HALF, BRAIN)
"""Those that stay infinite as they travel: servers see that they overflow."""

_COMPRESSIONS = {
    HALF: {"type": "float16"},
    TWO_BITS: {"type": "2bit", "threshold": 1.0},
    LARGEST: {"type": "topk", "ratio": 0.25},  # of 40 samples: more than a batch has
}


class RowsArray(NumpyArray):
    """A `RowsArray` stores some rows of a gradient. See `Array`."""

    def stored_rows(self) -> Rows:
        """See `Array.stored_rows`."""
        numbers = np.flatnonzero(self.values).astype(np.int64)
        return Rows(numbers, self.values[numbers].reshape(-1, 1))


def gradient(kind: str, samples: int, indices: Sequence[int], overflows: bool = False) -> NumpyArray:
    """Return the gradient of some samples.

    Args:
        kind: of `KINDS`.
        samples: that there are.
        indices: of those that it is of.
        overflows: it is infinite, so that all skip the step.
    """
    values = np.zeros(samples, np.float32)
    values[list(indices)] = np.inf if overflows else 1.0
    return RowsArray(values) if kind == ROWS else NumpyArray(values)


def compression(kind: str) -> Compression | None:
    """Return how gradients of a kind travel; None: as they are."""
    return Compression.of(_COMPRESSIONS[kind]) if kind in _COMPRESSIONS else None
