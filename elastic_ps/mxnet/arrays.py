"""This module makes MXNet's arrays the worker side's `Array`: CPU memory is read and written in place.

Order with MXNet's engine (docs/reference/mxnet.md): a read waits for the array's pending writes, a write for its reads
and writes. Both then touch the memory from the script's thread, outside the engine, so whatever the script enqueues
afterwards comes later.
"""

import ctypes
from collections.abc import Sequence
from math import prod
from operator import is_
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.native.bulk import find_all
from elastic_ps.worker.script.api import Array, Dense

_KEPT_BYTES = 1 << 16
"""Arrays up to this size are kept from call to call."""

_FEW = 4
"""Arrays that are waited for one by one."""

_VECTOR_BYTES = 1 << 14
"""A larger vector may hold the weights of a fused RNN: for inference MXNet keeps them in a layout of oneDNN's."""

_LAYOUT_DIMENSIONS = 2
"""oneDNN has no layout of its own for arrays with fewer."""

_HOST_MEMORY = ("cpu", "cpu_pinned", "cpu_shared")


def dtype_name(array: Any) -> str:
    """Return numpy's name of the array's element type."""
    return str(np.dtype(array.dtype).name)


class MXNetHostArray(Dense):
    """An `MXNetHostArray` is a dense array in this process's memory; neither read nor write makes a copy of its own."""

    def __init__(self, array: Any):
        self._array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = dtype_name(array)
        self.nbytes = array.size * np.dtype(self.dtype).itemsize
        self._bytes = ctypes.c_byte * self.nbytes
        self._address: int | None = None  # of the view that is kept
        self._kept: NDArray[Any] | None = None

    def read(self) -> NDArray[Any]:
        """Return a read-only view, which keeps the array alive and shows what is written to it later."""
        self._array.wait_to_read()
        view = self._view().view()
        view.flags.writeable = False
        return view

    @staticmethod
    def settle(arrays: Sequence[Array], to_write: bool) -> None:
        """See `Array.settle`."""
        if len(arrays) > _FEW:  # to wait for one array's reads is an operation of the engine's; to wait for all is none
            mx.nd.waitall()
            arrays = [array for array in arrays if to_write and _may_be_kept(array)]
        wait = _LIB.MXNDArrayWaitToWrite if to_write else _LIB.MXNDArrayWaitToRead
        for array in arrays:
            assert isinstance(array, MXNetHostArray)
            check_call(wait(array._array.handle))

    @staticmethod
    def addresses(arrays: Sequence[Array]) -> NDArray[np.int64]:
        """See `Array.addresses`."""
        handles = [array._array.handle.value for array in arrays]  # type: ignore[attr-defined]  # of this class
        status, found = find_all(_LIB.MXNDArrayGetData, handles)
        check_call(status)
        return found

    def memory(self) -> NDArray[Any]:
        """See `Array.memory`."""
        return self._view()

    def write(self, values: NDArray[Any]) -> None:
        """Replace the values."""
        self.settle([self], to_write=True)
        self._view()[...] = values

    def _view(self) -> NDArray[Any]:
        if self._kept is not None and len(self.shape) < _LAYOUT_DIMENSIONS:
            return self._kept
        # Asked for anew each time: the call turns a oneDNN layout, which a forward pass may have left in the array,
        # back into the plain one and may move the memory for it.
        address = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(self._array.handle, ctypes.byref(address)))
        if self._kept is None or address.value != self._address:
            self._address = address.value
            memory = self._bytes.from_address(address.value or 0)
            memory._array = self._array  # the view's base keeps its memory alive
            self._kept = np.frombuffer(memory, dtype=self.dtype).reshape(self.shape)
        return self._kept


def _may_be_kept(array: Array) -> bool:
    """Return whether an operator may keep what it has made of an array, until the engine counts a write of it."""
    return isinstance(array, MXNetHostArray) and len(array.shape) == 1 and array.nbytes > _VECTOR_BYTES


class Copied:
    """A `Copied` array is one whose memory the worker side cannot touch."""

    @staticmethod
    def settle(arrays: Sequence[Array], to_write: bool) -> None:
        """See `Array.settle`: `read` and `write` see to it."""

    @staticmethod
    def addresses(arrays: Sequence[Array]) -> int:
        """See `Array.addresses`: none have one."""
        return 0

    def memory(self) -> None:
        """See `Array.memory`."""


class DeviceArray(Copied, Dense):
    """A `DeviceArray` is a dense array in an accelerator's memory, which is copied."""

    def __init__(self, array: Any):
        self._array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = dtype_name(array)

    def read(self) -> NDArray[Any]:
        """Return a copy of the values, in the array's shape and dtype."""
        values: NDArray[Any] = self._array.asnumpy()
        return values

    def write(self, values: NDArray[Any]) -> None:
        """Replace the values."""
        with mx.autograd.pause():
            # The constructor copies `values` before it returns; the engine orders the second copy.
            mx.nd.array(np.asarray(values), ctx=mx.cpu(), dtype=self.dtype).copyto(self._array)


class RowSparseArray(Copied):
    """A `RowSparseArray` stores only some rows.

    Args:
        array: of storage type "row_sparse".
        rows: ascending row numbers that `write` stores; None: all of them.
    """

    def __init__(self, array: Any, rows: NDArray[np.int64] | None = None):
        self._array = array
        self.rows = rows
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = dtype_name(array)

    def stored_rows(self) -> Rows | None:
        """See `Array.stored_rows`."""
        with mx.autograd.pause():
            numbers, values = self._array.indices.asnumpy().astype(np.int64), self._array.data.asnumpy()
        if (np.diff(numbers) <= 0).any():  # not what MXNet's own functions make: it says what that means
            return None
        return Rows(numbers, values.reshape(len(numbers), prod(self.shape[1:])))

    def read(self) -> NDArray[Any]:
        """Return all rows; those that are not stored are zero."""
        with mx.autograd.pause():
            return dense_array(self._array.tostype("default")).read()

    def write(self, values: NDArray[Any]) -> None:
        """Store the rows; others are dropped."""
        rows = np.arange(self.shape[0]) if self.rows is None else self.rows
        with mx.autograd.pause():  # Gluon pulls sparse weights while it records a forward pass
            data = mx.nd.array(values, ctx=mx.cpu(), dtype=self.dtype)
            sparse = mx.nd.sparse.row_sparse_array((data, rows), shape=self.shape, ctx=mx.cpu(), dtype=self.dtype)
            sparse.copyto(self._array)


def is_sparse(array: Any) -> bool:
    """Return whether an array stores only some rows."""
    return getattr(array, "stype", None) == "row_sparse"


def dense_array(array: Any) -> Array:
    """Return an `Array` over a dense NDArray on any device."""
    return MXNetHostArray(array) if array.ctx.device_type in _HOST_MEMORY else DeviceArray(array)


def wrap(key: int | str, array: Any) -> Array:
    """Return an `Array` over any NDArray that the store takes.

    Raises:
        ConfigurationError: no NDArray, a storage type or an element type that cannot be stored; names `key`.
    """
    check(key, array)
    return RowSparseArray(array) if is_sparse(array) else dense_array(array)


class Wrappers:
    """`Wrappers` keep what `wrap` found from call to call: to look at a small NDArray costs more than to copy it."""

    def __init__(self) -> None:
        self._kept: dict[int | str, list[tuple[Any, Array]]] = {}
        self._call: tuple[list[Any], list[Any], dict[int | str, list[Array]]] | None = None

    def again(self, keys: Any, values: Any) -> dict[int | str, list[Array]] | None:
        """Return what was wrapped in the call before where this is the same call again; None: it is another one."""
        if self._call is None or not isinstance(keys, list) or not isinstance(values, list):
            return None
        known_keys, known_values, wrapped = self._call
        same = len(values) == len(known_values) and keys == known_keys and all(map(is_, values, known_values))
        return wrapped if same else None

    def remember(self, keys: Any, values: Any, wrapped: dict[int | str, list[Array]]) -> None:
        """Keep what was wrapped of a call, for `again`, if its arrays are kept anyhow.

        Args:
            keys: as the script gave them.
            values: as the script gave them.
            wrapped: its arrays by key.
        """
        self._call = None
        if isinstance(keys, list) and isinstance(values, list) and len(wrapped) == len(keys):
            kept = [self._kept.get(key) for key in wrapped]
            if all(known is not None and known[0][0] is value for known, value in zip(kept, values, strict=False)):
                self._call = list(keys), list(values), wrapped

    def wrap(self, key: int | str, arrays: Sequence[Any]) -> list[Array]:
        """Return the `Array`s over a key's arrays; see `wrap`."""
        kept = self._kept.get(key, ())
        if len(kept) == len(arrays) and all(known is array for (known, _), array in zip(kept, arrays, strict=True)):
            return [wrapper for _, wrapper in kept]
        wrapped = [wrap(key, array) for array in arrays]
        if all(isinstance(wrapper, MXNetHostArray) and wrapper.nbytes <= _KEPT_BYTES for wrapper in wrapped):
            self._kept[key] = list(zip(arrays, wrapped, strict=True))  # keeps the arrays themselves, too
        else:
            self._kept.pop(key, None)
        return wrapped


def check(key: int | str, array: Any) -> None:
    """Refuse what no `Array` can stand for.

    Raises:
        ConfigurationError: see `wrap`.
    """
    if not isinstance(array, mx.nd.NDArray):
        raise ConfigurationError(f"key {key}: an NDArray is needed, not {type(array).__name__}")
    if array.stype not in ("default", "row_sparse"):
        raise ConfigurationError(
            f"key {key}: storage type {array.stype!r} cannot be stored, only 'default' and 'row_sparse' can; "
            "use array.tostype('default')"
        )
    dtype = np.dtype(array.dtype)
    if dtype.kind not in "fiub":
        raise ConfigurationError(
            f"key {key}: element type {dtype} cannot be stored, only numpy's floats, integers and bool can; "
            "use array.astype('float32')"
        )
    if 0 in array.shape:
        raise ConfigurationError(f"key {key}: shape {array.shape} has no elements")
    if not array.shape and not mx.util.is_np_shape():
        raise ConfigurationError(f"key {key}: shape () means unknown; scalars need mx.util.set_np_shape(True)")


def row_numbers(key: int | str, row_ids: Any, rows: int) -> NDArray[np.int64]:
    """Return the distinct `row_ids` in ascending order.

    Args:
        key: for the message.
        row_ids: an NDArray of whole numbers, of any shape.
        rows: how many rows the array has.

    Raises:
        ConfigurationError: one is not in range(rows), or they are no whole numbers.
    """
    ids = row_ids.asnumpy().ravel()
    numbers: NDArray[np.int64] = np.unique(ids.astype(np.int64))
    if not np.isin(ids, numbers).all():
        raise ConfigurationError(f"key {key}: row_ids must be whole numbers")
    if len(numbers) and not (numbers[0] >= 0 and numbers[-1] < rows):
        wrong = int(numbers[0] if numbers[0] < 0 else numbers[-1])
        raise ConfigurationError(f"key {key}: row_ids names row {wrong}, but the array has rows 0 to {rows - 1}")
    return numbers


def wrap_rows(key: int | str, out: Any, row_ids: Any) -> Array:
    """Return an `Array` whose `write` stores only some rows, for `row_sparse_pull`.

    Args:
        key: for the message.
        out: a row-sparse NDArray.
        row_ids: an NDArray with the numbers of the rows.

    Raises:
        ConfigurationError: `out` is not row-sparse, or a row does not exist; names `key`.
    """
    check(key, out)
    if not is_sparse(out):
        raise ConfigurationError(
            f"key {key}: row_sparse_pull writes to 'row_sparse' arrays, and out is {out.stype!r}; use pull"
        )
    if not isinstance(row_ids, mx.nd.NDArray):
        raise ConfigurationError(f"key {key}: row_ids must be an NDArray, not {type(row_ids).__name__}")
    return RowSparseArray(out, row_numbers(key, row_ids, out.shape[0]))
