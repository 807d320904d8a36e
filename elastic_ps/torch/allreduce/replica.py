"""A `Replica` is a worker's own model and optimizer, which it keeps alike with those of all members."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.torch.allreduce.group_numbers import group_numbers, set_group_numbers
from elastic_ps.torch.allreduce.record import StepRecord
from elastic_ps.torch.arrays import ModelArray

Sums = dict[torch.dtype, torch.Tensor]

_INTEGERS_AS = torch.float64
"""In this type statistics that are integers are averaged."""

_SAMPLED = 64
"""Elements of a parameter that a fingerprint looks at, at least."""


@dataclass
class _Slot:
    """A `_Slot` is a tensor's place among all of its type."""

    dtype: torch.dtype
    start: int
    count: int

    def of(self, flat: Mapping[torch.dtype, torch.Tensor]) -> torch.Tensor:
        return flat[self.dtype][self.start : self.start + self.count]


@dataclass(frozen=True)
class Portion:
    """A `Portion` of a replica goes to another worker at once.

    Attributes:
        keys: of parameters and buffers.
        parameters: numbers of those that the optimizer updates: its states of them belong to the portion.
    """

    keys: tuple[str, ...]
    parameters: range


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

    def buffers(self, spare: int) -> Sums:
        """Return zeros for all, with `spare` elements more."""
        return {dtype: torch.zeros(length + spare, dtype=dtype) for dtype, length in self.lengths.items()}

    def divisible(self, buffers: Sums, size: int) -> Sums:
        """Return as much of buffers as holds everything and can be divided by `size` members."""
        return {dtype: buffers[dtype][: -(-length // size) * size] for dtype, length in self.lengths.items()}


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
        self._statistic_spans = self.layout.spans_of_statistics()

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers of the optimizer's groups, as this worker's script has set them."""
        return group_numbers(self.optimizer)

    @torch.no_grad()
    def contribute(self, buffers: Sums, samples: int, weight: float) -> list[bool]:
        """Write this worker's part of a sum; return by parameter whether it has a gradient.

        Args:
            buffers: see `Layout.buffers`.
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
        for slot, parameter, present in zip(self.layout.parameters, self.parameters, record.present, strict=True):
            if not present:
                parameter.grad = None
                continue
            values = slot.of(record.sums).view(parameter.shape)
            if parameter.grad is None:
                parameter.grad = values.clone()
            else:
                parameter.grad.copy_(values)
        self.optimizer.step()
        self.set_statistics({dtype: record.sums[dtype][span] for dtype, span in self._statistic_spans.items()})

    def apply_portion(
        self, parameters: range, present: Sequence[bool], numbers: Sequence[float], gradients: Sums
    ) -> None:
        """Update some parameters by a record: the optimizer leaves those without a gradient as they are.

        Args:
            parameters: numbers of them. No other has a gradient now.
            present: by parameter, of all, whether anybody had a gradient of it.
            numbers: of the optimizer's groups.
            gradients: as they lie in `Layout.spans` of the parameters; they are not kept.
        """
        set_group_numbers(self.optimizer, numbers)
        spans = self.layout.spans(parameters)
        for number in parameters:
            slot, parameter = self.layout.parameters[number], self.parameters[number]
            start = slot.start - spans[slot.dtype].start
            values = gradients[slot.dtype][start : start + slot.count]
            parameter.grad = values.view(parameter.shape) if present[number] else None
        self.optimizer.step()
        for number in parameters:
            self.parameters[number].grad = None

    @torch.no_grad()
    def set_statistics(self, values: Sums) -> None:
        """Take the members' statistics, as they lie in `Layout.spans_of_statistics`."""
        spans = self._statistic_spans
        for slot, array in zip(self.layout.statistics, self._statistics, strict=True):
            start, target = slot.start - spans[slot.dtype].start, array.tensor
            found = values[slot.dtype][start : start + slot.count].view(target.shape)
            target.copy_(found if target.dtype.is_floating_point else found.round())

    def fingerprint(self) -> int:
        """Return a number, of 32 bits, that differs where a sample of the parameters' bits does."""
        found = 0
        for parameter in self.parameters:
            flat = parameter.detach().reshape(-1)
            sample = flat[:: max(1, flat.numel() // _SAMPLED)].contiguous()
            found = zlib.crc32(sample.view(torch.uint8).numpy().tobytes(), found)
        return found

    # ---- for another worker ------------------------------------------------------------------------------------------

    @property
    def all_of_it(self) -> Portion:
        """All, as one portion."""
        return Portion(tuple(self.arrays), range(len(self.parameters)))

    def state_of(self, number: int) -> dict[str, Any]:
        """Return the optimizer's state of a parameter; {}: it has none yet."""
        found: dict[str, Any] = self.optimizer.state.get(self.parameters[number], {})
        return found

    def bytes_of(self, number: int) -> int:
        """Return how many bytes a parameter and its state have."""
        held = [self.parameters[number], *self.state_of(number).values()]
        return sum(each.nbytes for each in held if isinstance(each, torch.Tensor))

    def check_parts(self) -> None:
        """Check that the optimizer updates each parameter by its own gradient and state, as all of `torch.optim` do.

        Raises:
            ConfigurationError: nobody knows that of it.
        """
        kind = type(self.optimizer)
        if not kind.__module__.startswith("torch.optim."):
            raise ConfigurationError(f"{kind.__name__} is none of torch.optim: it may update parameters together")

    @property
    def total_bytes(self) -> int:
        """Bytes of all parameters, buffers and states."""
        states = sum(self.bytes_of(number) - each.nbytes for number, each in enumerate(self.parameters))
        return states + sum(array.tensor.nbytes for array in self.arrays.values())

    def portions(self, limit: int) -> list[Portion]:
        """Divide all into portions of at most `limit` bytes, or one tensor with its states where that has more."""
        keys = {id(array.tensor): key for key, array in self.arrays.items()}
        updated = [keys.pop(id(parameter)) for parameter in self.parameters]
        sizes = [(key, self.arrays[key].tensor.nbytes, 0) for key in keys.values()]
        sizes += [(key, self.bytes_of(number), 1) for number, key in enumerate(updated)]
        found: list[Portion] = []
        own: list[str] = []
        filled, first, last = 0, 0, 0
        for key, size, of_optimizer in sizes:
            if own and filled + size > limit:
                found.append(Portion(tuple(own), range(first, last)))
                own, filled, first = [], 0, last
            own.append(key)
            filled, last = filled + size, last + of_optimizer
        return [*found, Portion(tuple(own), range(first, last))]
