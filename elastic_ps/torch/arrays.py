"""This module makes PyTorch's tensors the worker side's `Array`: contiguous memory is read and written in place.

Tensors on a GPU are copied through pinned memory, in the order of the script's own stream.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.worker.script.api import Array

_NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
}

PARAMETERS = (torch.float32, torch.float64)
"""Element types that the servers have rules for."""

DEVICES = ("cpu", "cuda")
"""Types of devices on which a model may be."""


def check_tensor(name: str, tensor: torch.Tensor, kind: str) -> None:
    """Refuse what servers cannot hold.

    Args:
        name: of the tensor in the model.
        tensor: one of its parameters or buffers.
        kind: "parameter" or "buffer".

    Raises:
        ConfigurationError: names the tensor and the way out.
    """
    if torch.nn.parameter.is_lazy(tensor):
        raise ConfigurationError(
            f"{kind} {name} has no shape yet: call the model once with a batch before elastic.Optimizer is made"
        )
    if tensor.device.type not in DEVICES:
        raise ConfigurationError(
            f"{kind} {name} is on {tensor.device}: elastic_ps.torch trains on CPUs and on GPUs of CUDA; move the model "
            'there, model.to("cpu"), before elastic.Optimizer is made'
        )
    if kind == "parameter" and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ConfigurationError(
            f"parameter {name} is {tensor.dtype}: a job cannot hold quantized parameters; load the model without "
            "quantization, in float32, before elastic.Optimizer is made"
        )
    if kind == "parameter" and tensor.dtype not in PARAMETERS:
        raise ConfigurationError(
            f"parameter {name} is {tensor.dtype}: keep parameters in float32 (model.float()), and use "
            "torch.autocast for a forward pass with fewer bits"
        )


def laid_out_as(parameter: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return values as a parameter's gradient or state: a view, or a copy where its order or its device is another.

    Fused optimizers go through the memory of all three from end to end, whatever their strides are.
    """
    found = values.view(parameter.shape)
    if parameter.is_contiguous() and parameter.device == values.device:
        return found
    return torch.empty_like(parameter, dtype=values.dtype).copy_(found, non_blocking=True)


def overwrite(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Give a tensor the values of one of the same shape; one that was expanded has some memory for many elements."""
    for dimension, stride in enumerate(tensor.stride()):
        if not stride and tensor.shape[dimension] > 1:
            tensor, values = tensor.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    tensor.copy_(values, non_blocking=True)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's values in this process's memory: its own, or a copy of those that are on a GPU."""
    own = tensor.detach()
    return own if own.is_cpu else _pinned_like(own).copy_(own)


def bytes_of_each(tensors: Sequence[torch.Tensor]) -> list[bytes]:
    """Return the bytes of many small flat tensors, which cost one copy for each type and device and not one each."""
    alike: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for number, tensor in enumerate(tensors):
        alike.setdefault((tensor.dtype, tensor.device), []).append(number)
    found = [b""] * len(tensors)
    for numbers in alike.values():
        some = [tensors[number] for number in numbers]
        whole = on_host(torch.cat(some)).view(torch.uint8)
        for number, part in zip(numbers, torch.split_with_sizes(whole, [each.nbytes for each in some]), strict=True):
            found[number] = part.numpy().tobytes()
    return found


def copies_made(devices: Iterable[torch.device]) -> Callable[[], None]:
    """Return what waits until all is done that GPUs have been told to do up to now, by this thread.

    Args:
        devices: of the tensors that are copied; those that are no GPUs are left out.
    """
    events = []
    for device in {device for device in devices if device.type == "cuda"}:
        events.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
        events[-1].record(torch.cuda.current_stream(device))

    def wait() -> None:
        for event in events:
            event.synchronize()

    return wait


def _pinned_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return memory of a tensor's shape and type that a GPU copies to and from by itself; PyTorch keeps some of it."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)


def is_number(tensor: torch.Tensor) -> bool:
    """Return whether servers can hold tensors of this type and layout."""
    return tensor.dtype in _NAMES and tensor.layout is torch.strided


class TorchArray:
    """See `Array`.

    Args:
        tensor: read and written in place.
    """

    tensor: torch.Tensor
    rows: NDArray[np.int64] | None = None

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """See `Array.shape`."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> str:
        """See `Array.dtype`."""
        return _NAMES[self.tensor.dtype]

    def stored_rows(self) -> Rows | None:
        """See `Array.stored_rows`."""
        if self.tensor.layout is not torch.sparse_coo or self.tensor.sparse_dim() != 1:
            return None
        whole = self.tensor.detach().coalesce()
        values = on_host(whole.values()).numpy()
        return Rows(on_host(whole.indices()[0]).numpy(), values.reshape(len(values), prod(self.shape[1:])))

    def read(self) -> NDArray[Any]:
        """See `Array.read`."""
        tensor = self.tensor.detach()
        dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
        return np.ascontiguousarray(on_host(dense).numpy()).reshape(self.shape)

    @staticmethod
    def settle(arrays: Sequence[Array], to_write: bool) -> None:
        """See `Array.settle`: on a CPU nothing is ever pending, and copies to and from a GPU wait for what is."""

    @staticmethod
    def addresses(arrays: Sequence[Array]) -> NDArray[np.int64]:
        """See `Array.addresses`."""
        found = [array.tensor for array in arrays if isinstance(array, TorchArray)]
        return np.array([tensor.data_ptr() if _is_plain(tensor) else 0 for tensor in found], dtype=np.int64)

    def memory(self) -> NDArray[Any] | None:
        """See `Array.memory`."""
        return self.tensor.detach().numpy() if _is_plain(self.tensor) else None

    def write(self, values: NDArray[Any]) -> None:
        """See `Array.write`."""
        tensor = self.tensor.detach()
        if tensor.is_cpu:
            np.copyto(tensor.numpy(), values)
            return
        pinned = _pinned_like(tensor)
        np.copyto(pinned.numpy(), values)
        overwrite(tensor, pinned)  # PyTorch gives the memory to nobody else until the copy is made


class GradientArray(TorchArray):
    """A `GradientArray` is a gradient, which nobody changes any more; one on a GPU is copied to this process once."""

    @staticmethod
    def settle(arrays: Sequence[Array], to_write: bool) -> None:
        """See `Array.settle`: copy what is on GPUs, all at once."""
        devices = set()
        for array in arrays:
            assert isinstance(array, GradientArray)
            own = array.tensor.detach()
            if own.is_cuda and own.layout is torch.strided:
                devices.add(own.device)
                array.tensor = _pinned_like(own).copy_(own, non_blocking=True)
        copies_made(devices)()


class ModelArray(TorchArray):
    """A `ModelArray` is a parameter or buffer of a module, whatever tensor that is at the moment.

    Args:
        module: that has it.
        name: its own, in the module.

    Attributes:
        first_dtype: the type of its elements when this array was made.
    """

    def __init__(self, module: torch.nn.Module, name: str):
        self._module = module
        self._name = name
        self.first_dtype = self.tensor.dtype
        self._nbytes = self.tensor.nbytes

    @staticmethod
    def addresses(arrays: Sequence[Array]) -> NDArray[np.int64]:
        """See `Array.addresses`; one that has become larger or smaller is written to by nobody who does not look."""
        found = TorchArray.addresses(arrays)
        for number, array in enumerate(arrays):
            if isinstance(array, ModelArray) and array.tensor.nbytes != array._nbytes:
                found[number] = 0
        return found

    @property
    def is_state(self) -> bool:
        """It is state of the model: a buffer with `persistent=False` is not, as its module makes it of other things."""
        return self._name not in self._module._non_persistent_buffers_set

    @property
    def tensor(self) -> torch.Tensor:  # type: ignore[override]
        """The tensor, now."""
        found: torch.Tensor = getattr(self._module, self._name)
        return found


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu and tensor.layout is torch.strided and tensor.is_contiguous()
