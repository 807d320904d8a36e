"""A `Replica` is a worker's own model and optimizer, which it keeps alike with those of all members."""

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.torch.allreduce.replica.fingerprint import fingerprint_of
from elastic_ps.torch.allreduce.replica.group_numbers import group_numbers, set_group_numbers
from elastic_ps.torch.allreduce.replica.own_numbers import OwnNumbers
from elastic_ps.torch.allreduce.replica.record import StepRecord
from elastic_ps.torch.allreduce.summing.layout import Bucket, Layout, Sums, TensorSlot
from elastic_ps.torch.arrays import ModelArray, copies_made, laid_out_as, overwrite
from elastic_ps.torch.states import placed


@dataclass(frozen=True)
class Portion:
    """A `Portion` of a replica goes to another worker at once.

    Attributes:
        keys: of parameters and buffers.
        parameters: numbers of those that the optimizer updates: its states of them belong to the portion.
    """

    keys: tuple[str, ...]
    parameters: range


@dataclass(frozen=True)
class PartWeights:
    """`PartWeights` are a worker's in a step, so that the sum over all members is the mean that is wanted.

    Attributes:
        gradients: of its gradients; 0: it has none.
        statistics: of its statistics.
    """

    gradients: float
    statistics: float


class Replica:
    """A `Replica` gives its gradients for a sum, and applies the sum by the script's own optimizer.

    Args:
        optimizer: the script's own, of PyTorch.
        parameters: those that it updates, in the model's order.
        arrays: all parameters and buffers of the model, by key.
        statistics: keys of the buffers that are averaged in every step.
        wire: see `Layout`.
        kept: returns the keys of the buffers that the script sets by itself.
        first: see `shared_tensor`: of the buffers that are no state of the model, by key; None: there are none.

    Attributes:
        layout: of gradients and statistics in sums.
        parameter_numbers: their places in `parameters`, by key.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[torch.Tensor],
        arrays: Mapping[str, ModelArray],
        statistics: Collection[str],
        wire: torch.dtype | None = None,
        kept: Callable[[], Collection[str]] = tuple,
        first: Mapping[str, torch.Tensor] | None = None,
    ):
        self.optimizer = optimizer
        self._own_numbers = OwnNumbers(optimizer)
        self.parameters = parameters
        self.arrays = arrays
        self._kept = kept
        self._first = {key: values for key, values in (first or {}).items() if key not in statistics}
        keys = [key for key in arrays if key in statistics]
        self._statistics = [arrays[key] for key in keys]
        self.layout = Layout.of(parameters, [array.tensor for array in self._statistics], wire)
        self._statistic_slots = dict(zip(keys, self.layout.statistics, strict=True))
        self._statistic_spans = self.layout.spans_of_statistics()
        numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self.parameter_numbers = {
            key: numbers[id(array.tensor)] for key, array in arrays.items() if id(array.tensor) in numbers
        }
        self._held: Sums = {}  # statistics as they are at the version that is held
        self._devices = {tensor.device for tensor in (*parameters, *(array.tensor for array in self._statistics))}
        self._changes = False  # the optimizer has once changed a gradient
        self._changed: Callable[[], None] = lambda: None  # waits until GPUs have made the last change
        self.keep_statistics()

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers of the optimizer's groups, as this worker's script has set them."""
        return group_numbers(self.optimizer)

    @contextmanager
    def keeping_numbers(self) -> Iterator[None]:
        """Take over what members hold within; schedules count on from this script's own numbers, not from the chief's.

        Those of an optimizer of the script's own stay as they have come: its step may have changed them.
        """
        own = self.numbers
        yield
        if self._is_of_torch:
            set_group_numbers(self.optimizer, own)

    def present(self, gives: bool) -> list[bool]:
        """Return by parameter whether this worker has a gradient of it; none where it `gives` none."""
        return [gives and parameter.grad is not None for parameter in self.parameters]

    def frozen(self, gives: bool) -> list[bool]:
        """Return by parameter whether the script has frozen it; none where this worker `gives` no gradient.

        It may have one all the same, of zeros: `zero_grad(set_to_none=False)` leaves it, and no joiner has it.
        """
        return [gives and not each.requires_grad for each in self.parameters]

    def spare_gradients(self) -> list[torch.Tensor]:
        """Return memory as that of the next step's gradients, which these take when it is free: it has its pages."""
        trained = [parameter for parameter in self.parameters if parameter.requires_grad and not parameter.is_cuda]
        return [torch.zeros_like(parameter) for parameter in trained]

    @torch.no_grad()
    def fill(self, bucket: Bucket, sums: Sums, weights: PartWeights) -> Callable[[], None]:
        """Write this worker's part of a bucket; return what waits until it is there, as a GPU copies by itself.

        Args:
            bucket: of the layout.
            sums: see `Layout.buffers`.
            weights: of this worker's part of the step.
        """
        flat = sums[bucket.dtype]
        for piece in bucket.gradients:
            gradient = self.parameters[piece.number].grad
            if gradient is None or not weights.gradients:
                flat[piece.place].zero_()
            elif gradient.is_cuda:
                flat[piece.place].copy_(gradient.reshape(-1)[piece.within] * weights.gradients, non_blocking=True)
            else:
                torch.mul(gradient.reshape(-1)[piece.within], weights.gradients, out=flat[piece.place])
        for piece in bucket.statistics:
            if not weights.statistics:  # 0 times an infinity is no number
                flat[piece.place].zero_()
                continue
            values = self._statistics[piece.number].tensor.reshape(-1)[piece.within]
            flat[piece.place].copy_(values.to(flat.dtype) * weights.statistics, non_blocking=True)
        return copies_made(self._devices)

    @torch.no_grad()
    def apply(self, record: StepRecord) -> bool:
        """Update parameters and statistics by a record; return whether its memory has stayed as it was.

        The script's gradients stay its own. An optimizer of torch.optim is lent the record's memory; others may change
        gradients where PyTorch does not count it (`grad.data`), or keep them.
        """
        set_group_numbers(self.optimizer, record.numbers)
        self.set_statistics({dtype: record.sums[dtype][span] for dtype, span in self._statistic_spans.items()})
        own = [parameter.grad for parameter in self.parameters]
        lends = self._updates_parts and not self._changes
        for slot, parameter, present in zip(self.layout.parameters, self.parameters, record.present, strict=True):
            values = slot.of(record.sums) if lends else slot.of(record.sums).clone()
            parameter.grad = laid_out_as(parameter, values) if present else None
        wait = copies_made(self._devices)
        before = [whole._version for whole in record.sums.values()]
        if any(record.present):
            with nullcontext() if self._is_of_torch else self._own_numbers.watching():
                self.optimizer.step()
        wait()  # the record's memory may be filled anew
        for parameter, gradient in zip(self.parameters, own, strict=True):
            parameter.grad = gradient
        is_whole = before == [whole._version for whole in record.sums.values()]
        self._changes = self._changes or not is_whole
        self.note_change()
        return is_whole

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
            parameter.grad = laid_out_as(parameter, values) if present[number] else None
        self.optimizer.step()
        for number in parameters:
            self.parameters[number].grad = None

    @torch.no_grad()
    def set_statistics(self, values: Sums) -> None:
        """Take the members' statistics, as they lie in `Layout.spans_of_statistics`."""
        self._held = {dtype: values[dtype].clone() for dtype in self._statistic_spans}
        self._write_statistics(values)

    @torch.no_grad()
    def keep_statistics(self) -> None:
        """Take note that the statistics are those of the version that is held: no batch since has changed them."""
        spans = self._statistic_spans
        self._held = {
            dtype: torch.empty(span.stop - span.start, dtype=dtype, device="cpu") for dtype, span in spans.items()
        }
        for slot, array in zip(self.layout.statistics, self._statistics, strict=True):
            start = slot.start - spans[slot.dtype].start
            self._held[slot.dtype][start : start + slot.count].copy_(array.tensor.reshape(-1))

    def undo_batch(self) -> None:
        """Make the statistics those of the version that is held: a batch that has changed them is computed again."""
        self._write_statistics(self._held)

    @torch.no_grad()
    def _write_statistics(self, values: Sums) -> None:
        for slot, array in zip(self.layout.statistics, self._statistics, strict=True):
            target = array.tensor
            overwrite(target, self._statistic(slot, target, values))

    def _statistic(self, slot: TensorSlot, like: torch.Tensor, values: Sums) -> torch.Tensor:
        start = slot.start - self._statistic_spans[slot.dtype].start
        found = values[slot.dtype][start : start + slot.count].view(like.shape)
        return found if like.dtype.is_floating_point else found.round().to(like.dtype)

    def held_tensor(self, key: str) -> torch.Tensor:
        """Return a tensor of the version that is held: the batch of a step under way has changed the statistics."""
        tensor = self.shared_tensor(key)
        slot = self._statistic_slots.get(key)
        return tensor if slot is None else self._statistic(slot, tensor, self._held).to(tensor.dtype)

    def shared_tensor(self, key: str) -> torch.Tensor:
        """Return a tensor as it is, but a buffer that is no state of the model as the job began with it.

        What this worker's module has made of that belongs to its own batches, and to numbers that nobody else gets.
        """
        return self._first.get(key, self.arrays[key].tensor)

    @torch.no_grad()
    def take(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take tensors, with their keys, as another worker or a checkpoint has them.

        Buffers that the script sets by itself stay as they are.
        """
        kept = self._kept()
        for key, values in tensors:
            if key in self._first:  # as this worker gives it on
                overwrite(self._first[key], values)
            if key not in kept:
                overwrite(self.arrays[key].tensor, values)

    def note_change(self) -> None:
        """Take note that the script's thread may have told GPUs to change something, on its own stream."""
        self._changed = copies_made(self._devices)

    def wait_for_change(self) -> None:
        """Wait until GPUs have made the last change: who reads on another thread is on another stream."""
        self._changed()

    def fingerprint(self) -> int:
        """Return a number, of 32 bits, that differs where a sample of the parameters' or states' bits does."""
        self.wait_for_change()
        held: list[Any] = []
        for number, parameter in enumerate(self.parameters):
            held += [parameter, *(value for _, value in sorted(self.state_of(number).items()))]
        return fingerprint_of([each for each in held if isinstance(each, torch.Tensor)])

    def shape(self) -> int:
        """Return a number, of 32 bits, that is the same where parameters, statistics, groups and `wire` are alike."""
        layout = self.layout
        described = [repr(slot) for slot in (*layout.parameters, *layout.statistics)]
        described += [str(len(self.numbers)), *([str(layout.wire)] if layout.wire else [])]
        return zlib.crc32("\n".join(described).encode())

    # ---- for another worker ------------------------------------------------------------------------------------------

    @property
    def all_of_it(self) -> Portion:
        """All, as one portion."""
        return Portion(tuple(self.arrays), range(len(self.parameters)))

    def state_of(self, number: int) -> dict[str, Any]:
        """Return the optimizer's state of a parameter; {}: it has none yet."""
        parameter = self.parameters[number]
        return {**self.optimizer.state.get(parameter, {}), **self._own_numbers.beside(parameter)}

    def set_state(self, number: int, state: Mapping[str, Any]) -> None:
        """Give the optimizer its state of a parameter, {}: none, on the devices where PyTorch keeps it."""
        parameter = self.parameters[number]
        self.optimizer.state.pop(parameter, None)
        state = self._own_numbers.taken_out(parameter, state)
        if not state:
            return
        groups = self.optimizer.param_groups
        group = next(group for group in groups if any(parameter is each for each in group["params"]))
        found = {name: placed(group, parameter, name, value) for name, value in state.items()}
        self.optimizer.state[parameter] = found

    def bytes_of(self, number: int) -> int:
        """Return how many bytes a parameter and its state have."""
        held = [self.parameters[number], *self.state_of(number).values()]
        return sum(each.nbytes for each in held if isinstance(each, torch.Tensor))

    def check_parts(self) -> None:
        """Check that the optimizer updates each parameter by its own gradient and state, as all of `torch.optim` do.

        Raises:
            ConfigurationError: nobody knows that of it.
        """
        if not self._updates_parts:
            name = type(self.optimizer).__name__
            raise ConfigurationError(f"{name} is none of torch.optim, or has hooks: it may update parameters together")

    @property
    def _updates_parts(self) -> bool:
        """Return whether the optimizer is known to use each gradient for its own parameter alone."""
        optimizer = self.optimizer
        return self._is_of_torch and not (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)

    @property
    def _is_of_torch(self) -> bool:
        return type(self.optimizer).__module__.startswith("torch.optim.")

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
