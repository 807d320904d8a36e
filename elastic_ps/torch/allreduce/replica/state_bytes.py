"""This module packs a replica, or a portion of it, as bytes for another worker: tensors and the optimizer's state."""

import json
from typing import Any

import torch

from elastic_ps.core.errors import ConfigurationError, ProtocolError
from elastic_ps.torch.allreduce.replica.replica import Portion, Replica
from elastic_ps.torch.arrays import laid_out_as, on_host

_HEAD = 8  # bytes of the header's length


def pack(replica: Replica, told: dict[str, Any], portion: Portion | None = None) -> torch.Tensor:
    """Return a replica as one tensor of bytes.

    Args:
        replica: to pack.
        told: what goes with it, of JSON's types.
        portion: what of it; None: all.

    Raises:
        ConfigurationError: the optimizer keeps what cannot be given to another worker.
    """
    portion = portion or replica.all_of_it
    replica.wait_for_change()
    parts: list[torch.Tensor] = []
    tensors = {key: _place(replica.held_tensor(key), parts) for key in portion.keys}
    states = [
        [number, {name: _packed(name, value, parts) for name, value in replica.state_of(number).items()}]
        for number in portion.parameters
    ]
    header = json.dumps({"told": told, "count": len(replica.arrays), "tensors": tensors, "states": states}).encode()
    head = torch.tensor([len(header)], dtype=torch.int64, device="cpu").view(torch.uint8)
    return torch.cat([head, torch.frombuffer(bytearray(header), dtype=torch.uint8), *parts])


def unpack(replica: Replica, packed: torch.Tensor) -> dict[str, Any]:
    """Fill a replica with what `pack` has made of another, or of a portion of it; return what was told with it.

    Buffers that the script sets by itself stay as they are.

    Raises:
        ProtocolError: it is of another model.
    """
    length = int(packed[:_HEAD].view(torch.int64).item())
    header = json.loads(packed[_HEAD : _HEAD + length].numpy().tobytes())
    payload = packed[_HEAD + length :]
    shapes = {key: list(array.tensor.shape) for key, array in replica.arrays.items()}
    given = {key: place["shape"] for key, place in header["tensors"].items()}
    if header["count"] != len(shapes) or any(shapes.get(key) != shape for key, shape in given.items()):
        raise ProtocolError("the members' models are not alike: give all workers the same script")
    replica.take((key, _tensor(place, payload)) for key, place in header["tensors"].items())
    for number, state in header["states"]:
        parameter = replica.parameters[number]
        replica.set_state(number, {name: _unpacked(value, payload, parameter) for name, value in state.items()})
    replica.keep_statistics()
    replica.note_change()
    told: dict[str, Any] = header["told"]
    return told


def _place(tensor: torch.Tensor, parts: list[torch.Tensor]) -> dict[str, Any]:
    """Add a tensor's bytes to the parts; return where they lie among all, and of what kind they are."""
    start = sum(len(part) for part in parts)
    parts.append(on_host(tensor).contiguous().reshape(-1).view(torch.uint8))
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "start": start}


def _tensor(place: dict[str, Any], payload: torch.Tensor) -> torch.Tensor:
    dtype, shape = getattr(torch, place["dtype"]), place["shape"]
    count = dtype.itemsize
    for extent in shape:
        count *= extent
    raw = payload[place["start"] : place["start"] + count].clone()  # aligned, and the replica's own
    return raw.view(dtype).reshape(shape)


def plain(value: Any) -> Any:
    """Return a number that numpy has made, which counts as one of Python's, as one; other processes read that."""
    kind = next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)
    return value if kind is None else kind(value)


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
    return _place(value, parts) if isinstance(value, torch.Tensor) else [plain(value)]


def _unpacked(value: Any, payload: torch.Tensor, parameter: torch.Tensor) -> Any:
    if isinstance(value, list):
        return value[0]
    found = _tensor(value, payload)
    return laid_out_as(parameter, found) if found.shape == parameter.shape else found
