"""This module packs all of a replica as bytes for another member: parameters, buffers and the optimizer's state."""

import json
from typing import Any

import torch

from elastic_ps.core.errors import ConfigurationError, ProtocolError
from elastic_ps.torch.allreduce.replica import Replica

_HEAD = 8  # bytes of the header's length


def pack(replica: Replica, told: dict[str, Any]) -> torch.Tensor:
    """Return a replica as one tensor of bytes.

    Args:
        replica: to pack.
        told: what goes with it, of JSON's types.

    Raises:
        ConfigurationError: the optimizer keeps what cannot be given to another worker.
    """
    parts: list[torch.Tensor] = []
    tensors = {key: _place(array.tensor, parts) for key, array in replica.arrays.items()}
    states = [
        {name: _packed(name, value, parts) for name, value in replica.optimizer.state.get(parameter, {}).items()}
        for parameter in replica.parameters
    ]
    header = json.dumps({"told": told, "tensors": tensors, "states": states}).encode()
    head = torch.tensor([len(header)], dtype=torch.int64).view(torch.uint8)
    return torch.cat([head, torch.frombuffer(bytearray(header), dtype=torch.uint8), *parts])


def unpack(replica: Replica, packed: torch.Tensor) -> dict[str, Any]:
    """Fill a replica with what `pack` has made of another; return what was told with it.

    Raises:
        ProtocolError: it is of another model.
    """
    length = int(packed[:_HEAD].view(torch.int64).item())
    header = json.loads(packed[_HEAD : _HEAD + length].numpy().tobytes())
    if header["tensors"].keys() != replica.arrays.keys() or len(header["states"]) != len(replica.parameters):
        raise ProtocolError("the members' models are not alike: give all workers the same script")
    payload = packed[_HEAD + length :]
    with torch.no_grad():
        for key, array in replica.arrays.items():
            array.tensor.copy_(_tensor(header["tensors"][key], payload).view(array.tensor.shape))
    replica.optimizer.state.clear()
    for parameter, state in zip(replica.parameters, header["states"], strict=True):
        if state:
            replica.optimizer.state[parameter] = {name: _unpacked(value, payload) for name, value in state.items()}
    told: dict[str, Any] = header["told"]
    return told


def _place(tensor: torch.Tensor, parts: list[torch.Tensor]) -> dict[str, Any]:
    """Add a tensor's bytes to the parts; return where they lie among all, and of what kind they are."""
    start = sum(len(part) for part in parts)
    parts.append(tensor.detach().contiguous().reshape(-1).view(torch.uint8))
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "start": start}


def _tensor(place: dict[str, Any], payload: torch.Tensor) -> torch.Tensor:
    dtype, shape = getattr(torch, place["dtype"]), place["shape"]
    count = dtype.itemsize
    for extent in shape:
        count *= extent
    raw = payload[place["start"] : place["start"] + count].clone()  # aligned, and the replica's own
    return raw.view(dtype).reshape(shape)


def check_state(name: str, value: Any) -> None:
    """Refuse what an optimizer may keep, and no other worker could be given.

    Raises:
        ConfigurationError: it is neither a tensor nor a number.
    """
    if value is not None and not isinstance(value, torch.Tensor | bool | int | float):
        raise ConfigurationError(
            f"the optimizer's state has {name}, a {type(value).__name__}: --mode all-reduce gives joining workers "
            "states that are tensors and numbers; take an optimizer of torch.optim, or train with servers"
        )


def _packed(name: str, value: Any, parts: list[torch.Tensor]) -> Any:
    check_state(name, value)
    return _place(value, parts) if isinstance(value, torch.Tensor) else [value]


def _unpacked(value: Any, payload: torch.Tensor) -> Any:
    return value[0] if isinstance(value, list) else _tensor(value, payload)
