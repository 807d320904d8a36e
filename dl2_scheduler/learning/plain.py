"""Checkpoints as plain data: numbers, texts, lists and arrays. Nothing in such a file can be run when it is read.

`torch.save` writes pickles, and unpickling runs what the file says. So what is written is made of plain data alone, and
what is read is read with `weights_only`, which makes nothing else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dl2_scheduler.cluster.errors import BadInput
from elastic_ps.system.bounded_files import MIB, read_bytes
from elastic_ps.system.whole_files import write_whole

_MOST_BYTES = 2048 * MIB
_SCALARS: tuple[type, ...] = (bool, int, float, str)


def write_plain(state: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        state: of dicts, lists, tuples, numbers, texts, None, and arrays of numpy or torch.
        path: of the file.

    Raises:
        TypeError: there is something else in it.
        OSError: it cannot be written.
    """
    whole = BytesIO()  # of a full disk torch tells in an error that does not say so, and leaves half a file
    torch.save(_plain(state), whole)
    write_whole(path, whole.getbuffer(), path.with_suffix(".partial"))


def read_plain(path: Path) -> dict[str, Any]:
    """Return a checkpoint; its arrays are tensors.

    Raises:
        BadInput: there is none, it is damaged, or there is more than plain data in it.
    """
    try:
        found = torch.load(BytesIO(read_bytes(path, _MOST_BYTES)), weights_only=True, map_location="cpu")
    except Exception as error:  # of torch's, which has no base of its own for what is wrong with a file
        raise BadInput(f"no checkpoint in {path.parent}: {_reason(error)}") from error
    if not isinstance(found, dict):
        raise BadInput(f"no checkpoint in {path.parent}: a {type(found).__name__} instead of named parts")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in _tensors(found)):
        raise BadInput(f"{path} has numbers that are not finite: learning went wrong; use an earlier run")
    return found


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in a checkpoint."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def load_adam(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Take up an optimizer's moments; its settings stay its own.

    Args:
        optimizer: Adam, of a network's parameters.
        state: its `state_dict` of before.

    Raises:
        ValueError, KeyError, TypeError: they are not moments of these parameters.
    """
    own = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, moments in state["state"].items():
        shapes = [tuple(moments[name].shape) for name in ("exp_avg", "exp_avg_sq", "step")]
        shape = tuple(parameters[number].shape)
        if shapes != [shape, shape, ()]:
            _refuse(f"moments of shapes {shapes} of parameters of {shape}")
    optimizer.load_state_dict({"state": state["state"], "param_groups": own["param_groups"]})


def _reason(error: Exception) -> str:
    text = str(error)
    if "Unsupported" in text or "Weights only" in text or "weights_only" in text:
        return "there is more than plain data in it, which is not read: it could run code. Make the run anew"
    return text.partition("\n")[0][:200] or type(error).__name__


def _plain(value: Any) -> Any:
    """Return the same as plain data; arrays are tensors."""
    if value is None:
        return None
    for kind in _SCALARS:
        if isinstance(value, kind):
            return kind(value)  # an enum's member is its value
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, order="C"))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {_plain(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}: {value!r}")


@contextmanager
def restored(path: Path) -> Iterator[None]:
    """Turn whatever is missing or wrong in a checkpoint, while it is taken up, into BadInput.

    Args:
        path: of its file.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0][:200]
        raise BadInput(f"{path} is damaged, or of another version: {reason}: make the run anew") from error


def numbers(value: Any, kind: type[np.generic], columns: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return an array of a checkpoint.

    Args:
        value: as it was read.
        kind: of the numbers that it has to have.
        columns: sizes of all axes but the first; None: it has one axis.

    Raises:
        ValueError: it is no array of them, or one of its numbers is not finite.
    """
    found = np.asarray(value) if isinstance(value, Tensor | np.ndarray) else np.zeros(())
    if not found.ndim or found.dtype != kind or found.shape[1:] != (columns or ()):
        _refuse(f"something instead of an array of {kind.__name__}, columns {columns or ()}")
    if not np.isfinite(found).all():
        _refuse("an array whose numbers are not finite")
    return found


def whole(value: Any, least: int = 0) -> int:
    """Return a whole number of a checkpoint. Raises ValueError: it is none, or too small."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        _refuse(f"{str(value)[:40]} instead of a whole number from {least} on")
    return value


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)
