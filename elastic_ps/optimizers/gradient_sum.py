"""A `GradientSum` adds gradients of several workers while the optimizer runs, chunk by chunk in a core's own cache."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.segments import Array, Raw
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.native.library import Sum
from elastic_ps.native.threads import in_parallel

DType = np.dtype[Any]

Contribution = Raw | Rows
"""What a worker gives of a run of blocks: the bytes of all of it, or some rows."""

CHUNK = 16384
"""Elements that are worked on at a time: values, gradients, states and scratch stay in a core's own cache."""


class Scratch(threading.local):
    """`Scratch` keeps a thread's work arrays of `CHUNK` elements from update to update."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._arrays: dict[DType, Array] = {}

    def take(self, length: int, dtype: DType) -> Array:
        """Return rows of `length` elements with undefined content."""
        rows = self._arrays.get(dtype)
        if rows is None:
            rows = self._arrays[dtype] = np.empty((self._rows, CHUNK), dtype)
        return rows[:, :length]


_scratch = Scratch(2)


@dataclass(frozen=True)
class GradientSum(Sum):
    """An `GradientSum` is the sum of the gradients that were pushed for a segment, added while the optimizer runs."""

    @property
    def dtype(self) -> DType:
        """The elements' type."""
        return self.arrays[0].dtype

    def __len__(self) -> int:
        return len(self.arrays[0])

    @property
    def _is_plain(self) -> bool:
        return len(self.arrays) == 1 and self.each is None and self.factor == 1.0

    def part(self, low: int, high: int) -> Array:
        """Return the elements [low, high), at most `CHUNK`: valid until this thread asks again; read only."""
        if self._is_plain and self.kept is None:
            return self.arrays[0][low:high]
        out: Array = _scratch.take(high - low, self.dtype)[0] if self.kept is None else self.kept[low:high]
        self._add(low, high, out)
        return out

    def whole(self) -> Array:
        """Return all of it in memory of its own."""
        out = np.empty(len(self), self.dtype)
        self.write(out)
        return out

    def write(self, out: Array) -> None:
        """Put all of it in `out`."""

        def work(first: int, last: int) -> None:
            for low in range(first, last, CHUNK):
                high = min(low + CHUNK, last)
                self._add(low, high, out[low:high])
                if self.kept is not None:
                    self.kept[low:high] = out[low:high]

        in_parallel(len(self), CHUNK, work)

    def _add(self, low: int, high: int, out: Array) -> None:
        parts = [array[low:high] for array in self.arrays]
        if self.dtype.kind != "f":
            out[...] = self._exact(parts)
            return
        with np.errstate(all="ignore"):  # an overflow is the script's, and shows as inf in its weights
            if self.each is None:
                out[...] = parts[0]
                for part in parts[1:]:
                    out += part
            else:
                weighted = _scratch.take(high - low, self.dtype)[1]
                weights = [self.dtype.type(weight) for weight in self.each]
                np.multiply(parts[0], weights[0], out=out)
                for part, weight in zip(parts[1:], weights[1:], strict=True):
                    np.multiply(part, weight, out=weighted)
                    out += weighted
            if self.factor != 1.0:
                out *= self.dtype.type(self.factor)

    def _exact(self, parts: Sequence[Array]) -> Array:
        """Return the sum of integers: as such, or, where they are weighted, in float64 and rounded."""
        if self.each is None and self.factor == 1.0:
            whole: Array = np.sum(parts, axis=0, dtype=self.dtype)
            return whole
        total: NDArray[np.float64] = np.zeros(len(parts[0]))
        for part, weight in zip(parts, self.each or [1.0] * len(parts), strict=True):
            total += part * weight
        rounded: Array = np.rint(total * self.factor).astype(self.dtype)
        return rounded
