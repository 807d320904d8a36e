"""A `NumpyArray` is an `Array` over numpy memory, for scripts without a framework: benchmarks, tests."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.native.library import address
from elastic_ps.worker.script.api import Array, Dense


@cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name  # numpy puts it together anew each time


class NumpyArray(Dense):
    """See `Array`.

    Args:
        values: read and written in place.
    """

    def __init__(self, values: NDArray[Any]):
        self.values = values

    @property
    def shape(self) -> tuple[int, ...]:
        """See `Array.shape`."""
        return self.values.shape

    @property
    def dtype(self) -> str:
        """See `Array.dtype`."""
        return _name(self.values.dtype)

    def read(self) -> NDArray[Any]:
        """See `Array.read`."""
        return self.values

    @staticmethod
    def settle(arrays: Sequence[Array], to_write: bool) -> None:
        """See `Array.settle`: nothing is ever pending."""

    @staticmethod
    def addresses(arrays: Sequence[Array]) -> NDArray[np.int64]:
        """See `Array.addresses`."""
        memories = [array.memory() for array in arrays]
        return np.array([address(m) if m is not None and m.flags.c_contiguous else 0 for m in memories])

    def memory(self) -> NDArray[Any]:
        """See `Array.memory`."""
        return self.values

    def write(self, values: NDArray[Any]) -> None:
        """See `Array.write`."""
        np.copyto(self.values, values)
