"""A `Replica` is a worker's own model and optimizer, which it keeps alike with those of all members."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from elastic_ps.torch.allreduce.group_numbers import group_numbers, set_group_numbers
from elastic_ps.torch.allreduce.record import StepRecord
from elastic_ps.torch.arrays import ModelArray

Sums = dict[torch.dtype, torch.Tensor]

_INTEGERS_AS = torch.float64
"""In this type statistics that are integers are averaged."""


@dataclass
class _Slot:
    """A `_Slot` is a tensor's place among all of its type."""

    dtype: torch.dtype
    start: int
    count: int

    def of(self, flat: Mapping[torch.dtype, torch.Tensor]) -> torch.Tensor:
        return flat[self.dtype][self.start : self.start + self.count]


@dataclass
class Layout:
    """A `Layout` says where each gradient and each statistic lies in the flat buffers that are summed.

    Attributes:
        parameters: places of the gradients, by parameter.
        statistics: places of the statistics; in each buffer they lie behind all gradients.
        lengths: of the buffers, by type of elements.
        gradients: how many elements of each buffer are of gradients.
    """

    parameters: list[_Slot] = field(default_factory=list)
    statistics: list[_Slot] = field(default_factory=list)
    lengths: dict[torch.dtype, int] = field(default_factory=dict)
    gradients: dict[torch.dtype, int] = field(default_factory=dict)

    @staticmethod
    def of(parameters: Sequence[torch.Tensor], statistics: Sequence[torch.Tensor]) -> "Layout":
        """Lay out the gradients of parameters, then statistics."""
        layout = Layout()
        for parameter in parameters:
            layout.parameters.append(layout._add(parameter.dtype, parameter.numel()))
        layout.gradients = dict(layout.lengths)
        for statistic in statistics:
            dtype = statistic.dtype if statistic.dtype.is_floating_point else _INTEGERS_AS
            layout.statistics.append(layout._add(dtype, statistic.numel()))
        return layout

    def _add(self, dtype: torch.dtype, count: int) -> _Slot:
        start = self.lengths.get(dtype, 0)
        self.lengths[dtype] = start + count
        return _Slot(dtype, start, count)

    def buffers(self, size: int) -> Sums:
        """Return zeros for all, of lengths that `size` members can divide among them."""
        return {dtype: torch.zeros(-(-length // size) * size, dtype=dtype) for dtype, length in self.lengths.items()}


class Replica:
    """A `Replica` gives its gradients for a sum, and applies the sum by the script's own optimizer.

    Args:
        optimizer: the script's own, of PyTorch.
        parameters: those that it updates, in the model's order.
        arrays: all parameters and buffers of the model, by key.
        statistics: keys of the buffers that are averaged in every step.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[torch.Tensor],
        arrays: Mapping[str, ModelArray],
        statistics: Collection[str],
    ):
        self.optimizer = optimizer
        self.parameters = parameters
        self.arrays = arrays
        self._statistics = [array for key, array in arrays.items() if key in statistics]
        self.layout = Layout.of(parameters, [array.tensor for array in self._statistics])

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers of the optimizer's groups, as this worker's script has set them."""
        return group_numbers(self.optimizer)

    @torch.no_grad()
    def contribute(self, buffers: Sums, samples: int, weight: float) -> list[bool]:
        """Write this worker's part of a sum; return by parameter whether it has a gradient.

        Args:
            buffers: as `Layout.buffers` makes them.
            samples: of this worker's part of the step; with none it gives zeros.
            weight: of its gradients; its statistics count by samples.
        """
        present = [samples > 0 and parameter.grad is not None for parameter in self.parameters]
        for slot, parameter, has in zip(self.layout.parameters, self.parameters, present, strict=True):
            if has:
                assert parameter.grad is not None
                torch.mul(parameter.grad.reshape(-1), weight, out=slot.of(buffers))
            else:
                slot.of(buffers).zero_()
        for slot, array in zip(self.layout.statistics, self._statistics, strict=True):
            slot.of(buffers).copy_(array.tensor.reshape(-1)).mul_(samples)
        return present

    def normalise(self, sums: Sums, samples: int, factor: float) -> None:
        """Turn sums into means.

        Args:
            sums: of all members, changed in place.
            samples: of all members' parts of the step: statistics are divided by them.
            factor: on gradients.
        """
        for dtype, whole in sums.items():
            end = self.layout.gradients.get(dtype, 0)
            if factor != 1.0:
                whole[:end].mul_(factor)
            whole[end:].div_(samples)

    @torch.no_grad()
    def apply(self, record: StepRecord) -> None:
        """Update parameters and statistics by a record; its memory stays as it is."""
        set_group_numbers(self.optimizer, record.numbers)
        places = zip(self.layout.parameters, self.parameters, record.present, strict=True)
        for slot, parameter, present in places:
            if not present:
                parameter.grad = None
                continue
            values = slot.of(record.sums).view(parameter.shape)
            if parameter.grad is None:
                parameter.grad = values.clone()
            else:
                parameter.grad.copy_(values)
        self.optimizer.step()
        for slot, array in zip(self.layout.statistics, self._statistics, strict=True):
            values, target = slot.of(record.sums).view(array.tensor.shape), array.tensor
            target.copy_(values if target.dtype.is_floating_point else values.round())
