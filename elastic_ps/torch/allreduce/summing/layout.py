"""A `Layout` says where each gradient and each statistic lies in the flat buffers that are summed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

Sums = dict[torch.dtype, torch.Tensor]

_INTEGERS_AS = torch.float64
"""In this type statistics that are integers are averaged."""


@dataclass
class TensorSlot:
    """A `TensorSlot` is a tensor's place among all of its type."""

    dtype: torch.dtype
    start: int
    count: int

    def of(self, flat: Mapping[torch.dtype, torch.Tensor]) -> torch.Tensor:
        """Return the tensor's values, flat, in a buffer of each type."""
        return flat[self.dtype][self.start : self.start + self.count]


@dataclass(frozen=True)
class BucketPiece:
    """A `BucketPiece` is what a bucket has of a tensor.

    Attributes:
        number: of the tensor.
        within: its elements.
        place: where they lie in the buffer of its type.
    """

    number: int
    within: slice
    place: slice


@dataclass(frozen=True)
class Bucket:
    """A `Bucket` is summed at once: some elements of a buffer, which lie one behind the other.

    Attributes:
        dtype: of the buffer.
        start: of its first element.
        stop: behind its last one.
        gradients: what lies in it.
        statistics: likewise.
        wire: in this type of elements it travels, rounded; None: as it is.
    """

    dtype: torch.dtype
    start: int
    stop: int
    gradients: tuple[BucketPiece, ...] = ()
    statistics: tuple[BucketPiece, ...] = ()
    wire: torch.dtype | None = None

    @property
    def span(self) -> slice:
        """The bucket's place in the buffer."""
        return slice(self.start, self.stop)

    def share(self, rank: int, size: int) -> slice:
        """Return what the member of a rank adds up, of a group of some size."""
        count = self.stop - self.start
        return slice(self.start + count * rank // size, self.start + count * (rank + 1) // size)


@dataclass
class Layout:
    """A `Layout` says where each gradient and each statistic lies in the flat buffers that are summed.

    Attributes:
        parameters: places of the gradients, by parameter.
        statistics: places of the statistics; in each buffer they lie behind all gradients.
        lengths: of the buffers, by type of elements.
        gradients: how many elements of each buffer are of gradients.
        pinned: the buffers are in memory that GPUs copy from and to fastest.
        wire: in this type of elements gradients of float32 travel, rounded; None: as they are.
    """

    parameters: list[TensorSlot] = field(default_factory=list)
    statistics: list[TensorSlot] = field(default_factory=list)
    lengths: dict[torch.dtype, int] = field(default_factory=dict)
    gradients: dict[torch.dtype, int] = field(default_factory=dict)
    pinned: bool = False
    wire: torch.dtype | None = None

    @staticmethod
    def of(
        parameters: Sequence[torch.Tensor], statistics: Sequence[torch.Tensor], wire: torch.dtype | None = None
    ) -> "Layout":
        """Lay out the gradients of parameters, then statistics.

        Args:
            parameters: that an optimizer updates.
            statistics: that are averaged.
            wire: see the class.
        """
        layout = Layout(pinned=any(parameter.is_cuda for parameter in parameters), wire=wire)
        for parameter in parameters:
            layout.parameters.append(layout._add(parameter.dtype, parameter.numel()))
        layout.gradients = dict(layout.lengths)
        for statistic in statistics:
            dtype = statistic.dtype if statistic.dtype.is_floating_point else _INTEGERS_AS
            layout.statistics.append(layout._add(dtype, statistic.numel()))
        return layout

    def _add(self, dtype: torch.dtype, count: int) -> TensorSlot:
        start = self.lengths.get(dtype, 0)
        self.lengths[dtype] = start + count
        return TensorSlot(dtype, start, count)

    def spans(self, parameters: range) -> dict[torch.dtype, slice]:
        """Return by type where the gradients of parameters lie, whose numbers are one behind the other."""
        found: dict[torch.dtype, slice] = {}
        for slot in self.parameters[parameters.start : parameters.stop]:
            start = found[slot.dtype].start if slot.dtype in found else slot.start
            found[slot.dtype] = slice(start, slot.start + slot.count)
        return found

    def spans_of_statistics(self) -> dict[torch.dtype, slice]:
        """Return by type where all statistics lie."""
        starts = {dtype: self.gradients.get(dtype, 0) for dtype in self.lengths}
        return {dtype: slice(starts[dtype], end) for dtype, end in self.lengths.items() if starts[dtype] < end}

    def buffers(self) -> Sums:
        """Return zeros for all."""
        pinned = self.pinned
        return {
            dtype: torch.zeros(length, dtype=dtype, device="cpu", pin_memory=pinned)
            for dtype, length in self.lengths.items()
        }

    def buckets(self, limit: int) -> list[Bucket]:
        """Divide all buffers into buckets of at most `limit` bytes, in the order in which a backward pass fills them.

        It makes the last parameter's gradient first. Statistics come last: they count when the step is computed.
        """
        found: list[Bucket] = []
        for dtype, end in self.gradients.items():
            size = max(1, limit // dtype.itemsize)
            wire = self.wire if dtype == torch.float32 else None
            for start in reversed(range(0, end, size)):
                stop = min(start + size, end)
                pieces = _pieces(self.parameters, dtype, start, stop)
                found.append(Bucket(dtype, start, stop, gradients=pieces, wire=wire))
        for dtype, span in self.spans_of_statistics().items():
            pieces = _pieces(self.statistics, dtype, span.start, span.stop)
            found.append(Bucket(dtype, span.start, span.stop, statistics=pieces))
        return found


def _pieces(slots: Sequence[TensorSlot], dtype: torch.dtype, start: int, stop: int) -> tuple[BucketPiece, ...]:
    """Return what lies in a part of the buffer of a type."""
    found: list[BucketPiece] = []
    for number, slot in enumerate(slots):
        low, high = max(start, slot.start), min(stop, slot.start + slot.count)
        if slot.dtype == dtype and low < high:
            found.append(BucketPiece(number, slice(low - slot.start, high - slot.start), slice(low, high)))
    return tuple(found)
