"""This module has gradients of some rows of a tensor, as an embedding's are; they cost what those rows cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Model, Run, Tensor

_NUMBER = np.dtype(np.int64)


@dataclass(frozen=True)
class Rows:
    """A `Rows` is some rows of a tensor; the others are zero, or stay as they are.

    Attributes:
        numbers: of the rows in the tensor, ascending, each once; int64, of shape (rows,).
        values: of shape (rows, elements of a row).
    """

    numbers: NDArray[np.int64]
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """The bytes of numbers and values."""
        return self.numbers.nbytes + self.values.nbytes

    def between(self, rows: range) -> "Rows":
        """Return those of them that are in `rows`."""
        low, high = np.searchsorted(self.numbers, (rows.start, rows.stop)).tolist()
        return Rows(self.numbers[low:high], self.values[low:high])

    def dense(self, rows: range) -> NDArray[Any]:
        """Return all of `rows` on one axis, with zeros for those that are not among them."""
        whole = np.zeros((len(rows), self.values.shape[1]), self.values.dtype)
        own = self.between(rows)
        whole[own.numbers - rows.start] = own.values
        return whole.reshape(-1)

    def payload(self) -> list[NDArray[Any]]:
        """Return what travels: the numbers, then the values."""
        return [np.ascontiguousarray(self.numbers), np.ascontiguousarray(self.values)]


def payload_bytes(model: Model, run_list: Sequence[Run], counts: Sequence[int]) -> list[int]:
    """Return the bytes of the payload of each run of blocks, of a frame that brings some rows of each.

    Args:
        model: of the job.
        run_list: the runs.
        counts: how many rows of each run travel.

    Raises:
        ProtocolError: there are more rows than the blocks hold, or the blocks hold no whole ones.
    """
    if len(counts) != len(run_list):
        raise ProtocolError(f"a frame of {len(run_list)} runs tells the rows of {len(counts)}")
    found = []
    for run, count in zip(run_list, counts, strict=True):
        rows = rows_of(model, run)
        if rows is None or not model.holds_rows(model.blocks[run[0]].tensor):
            raise ProtocolError(f"a frame brings rows of blocks {run}, which hold no whole ones of one tensor")
        if count > len(rows):
            raise ProtocolError(f"a frame brings {count} rows of blocks {run}, which hold {rows}")
        found.append(count * (_NUMBER.itemsize + _tensor(model, run).row_bytes))
    return found


def received(
    model: Model, run_list: Sequence[Run], counts: Sequence[int], data: Sequence[NDArray[np.uint8]]
) -> list[Rows]:
    """Return the rows that a frame has brought, by run: the inverse of `payload`.

    Args:
        model: of the job.
        run_list: the runs.
        counts: how many rows of each run have come.
        data: the payload of each run.

    Raises:
        ProtocolError: the rows are not ascending, or are of other blocks.
    """
    found = []
    for run, count, part in zip(run_list, counts, data, strict=True):
        rows, tensor = rows_of(model, run), _tensor(model, run)
        numbers = part[: count * _NUMBER.itemsize].view(_NUMBER)
        values = part[count * _NUMBER.itemsize :].view(tensor.dtype).reshape(count, prod(tensor.shape[1:]))
        assert rows is not None, "else its bytes were not known"
        if count and (numbers[0] < rows.start or numbers[-1] >= rows.stop or (np.diff(numbers) <= 0).any()):
            raise ProtocolError(f"rows {numbers[0]} to {numbers[-1]} are not ascending, or not among {rows}")
        found.append(Rows(numbers, values))
    return found


def _tensor(model: Model, run: Run) -> Tensor:
    return model.tensors[model.blocks[run[0]].tensor]


def summed(contributions: Sequence[Rows], each: Sequence[float] | None, factor: float) -> Rows:
    """Add several workers' rows in their order: a row has the same bits as in a dense sum.

    Args:
        contributions: at least one.
        each: factor of each before the sum; None: all 1.
        factor: of the sum.
    """
    first = contributions[0].values
    numbers = np.unique(np.concatenate([rows.numbers for rows in contributions]))
    total = np.zeros((len(numbers), first.shape[1]), first.dtype)
    with np.errstate(all="ignore"):
        for rows, weight in zip(contributions, each or [1.0] * len(contributions), strict=True):
            total[np.searchsorted(numbers, rows.numbers)] += rows.values * first.dtype.type(weight)
        if factor != 1.0:
            total *= first.dtype.type(factor)
    return Rows(numbers, total)


def rows_of(model: Model, run: Run) -> range | None:
    """Return the rows of its tensor that a run of blocks holds; None: it has several tensors, or its ends cut rows."""
    first, last = model.blocks[run[0]], model.blocks[run[0] + run[1] - 1]
    tensor = model.tensors[first.tensor]
    if first.tensor != last.tensor or len(tensor.shape) < 1 or not tensor.nbytes:
        return None
    low, high = first.offset, last.offset + last.nbytes
    if low % tensor.row_bytes or high % tensor.row_bytes:
        return None
    return range(low // tensor.row_bytes, high // tensor.row_bytes)
