"""This module copies between values that lie flat in parts and a script's arrays."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.model import ALIGNMENT
from elastic_ps.native.bulk import Addresses, move
from elastic_ps.native.threads import Copy
from elastic_ps.worker.script.api import Array
from elastic_ps.worker.wire.worker_state import WorkerState


def settle(arrays: Iterable[Array], to_write: bool) -> None:
    """See `Array.settle`; of arrays of any classes."""
    by_class: dict[type[Array], list[Array]] = defaultdict(list)
    for array in arrays:
        by_class[type(array)].append(array)
    for kind, of_kind in by_class.items():
        kind.settle(of_kind, to_write)


def addresses(arrays: Sequence[Array]) -> Addresses:
    """Return the addresses of settled arrays' memory; 0: it cannot be written to directly."""
    found = np.zeros(len(arrays), dtype=np.int64)
    kinds: set[type[Array]] = set(map(type, arrays))
    for kind in kinds:
        numbers = [number for number, array in enumerate(arrays) if type(array) is kind]
        found[numbers] = kind.addresses([arrays[number] for number in numbers])
    return found


def write_at_once(state: WorkerState, store: int, wanted: Sequence[tuple[str, Array]]) -> NDArray[np.bool_]:
    """Write installed values of a store's keys to settled arrays; return which could be: those in one piece at both
    ends.

    Args:
        state: the worker's.
        store: number of the key store.
        wanted: key and array, one for each that is to be written.
    """
    inbox, to = state.inbox, addresses([array for _, array in wanted])
    with state.changed:  # the model may grow at any time
        model = inbox.model
        tensors = np.array([model.index.get((store, key), -1) for key, _ in wanted], dtype=np.int64)
        alike = [
            tensor >= 0 and array.dtype == model.tensors[tensor].dtype
            for tensor, (_, array) in zip(tensors.tolist(), wanted, strict=True)
        ]
        source = inbox.addresses(tensors) if model.tensors else np.zeros(len(tensors), dtype=np.int64)
    done: NDArray[np.bool_] = np.array(alike, dtype=bool) & (source != 0) & (to != 0)
    move(to[done], source[done], model.extents[tensors[done], 2])
    return done


def padded(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a tensor's values with its padding, as they stand in a slab."""
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    found = np.zeros(max(ALIGNMENT, -(-raw.nbytes // ALIGNMENT) * ALIGNMENT), dtype=np.uint8)
    found[: raw.nbytes] = raw
    return found


def chosen_rows(parts: Sequence[NDArray[Any]], target: Array) -> NDArray[Any]:
    """Return those rows of values that a target takes; the values lie flat in parts."""
    assert target.rows is not None
    width = prod(target.shape[1:])
    if any(len(part) % width for part in parts):  # rows are cut where none fits in a block
        parts = [np.concatenate(parts)]
    found, low = [], 0
    for part in parts:
        high = low + len(part) // width
        own = target.rows[np.searchsorted(target.rows, low) : np.searchsorted(target.rows, high)]
        found.append(part.reshape(-1, width)[own - low])
        low = high
    whole: NDArray[Any] = np.concatenate(found)
    return whole.reshape(len(target.rows), *target.shape[1:])


def cut(memory: NDArray[Any], parts: Iterable[NDArray[Any]]) -> Iterator[Copy]:
    """Yield the copies that bring parts to flat memory."""
    low = 0
    for part in parts:
        yield memory[low : low + len(part)], part
        low += len(part)
