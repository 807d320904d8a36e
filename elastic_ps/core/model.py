"""This module cuts the tensors of a job into blocks, the unit of assignment.

A block is a contiguous byte range of one tensor. In every slab a block takes its `extent`, its size rounded up to
`ALIGNMENT`, so that a run of consecutive blocks is one aligned memory range wherever it stands, and the same bytes
on the wire. The padding is zero.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import lcm, prod

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError

ALIGNMENT = 64
DEFAULT_BLOCK_BYTES = 4 << 20

Run = tuple[int, int]
"""A `Run` is consecutive blocks: (first block id, number of blocks)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A `Tensor` describes one named model parameter or auxiliary array.

    Attributes:
        store: number of the key store it belongs to, in order of creation.
        key: "i:3" for an integer key, "s:weight" for a string.
        shape: in elements; () is a scalar.
        dtype: numpy's name.
        auxiliary: a running statistic, averaged over the workers, never optimized.
        divisible: False where the optimizer needs the whole tensor on one server (LAMB's norms).
    """

    store: int
    key: str
    shape: tuple[int, ...]
    dtype: str
    auxiliary: bool = False
    divisible: bool = True

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def row_bytes(self) -> int:
        """The bytes of what one index along the first axis holds, of a tensor that has elements and axes."""
        return self.nbytes // self.shape[0]

    @property
    def name(self) -> str:
        """The key as the script wrote it, for people, with its store where there is more than one."""
        return f"{self.key[2:]}" if self.store == 0 else f"{self.key[2:]} (store {self.store})"


@dataclass(frozen=True, slots=True)
class Block:
    """A `Block` is a contiguous byte range of one tensor.

    Attributes:
        id: dense, in order of tensors and offsets.
        tensor: index of its tensor.
        offset: in bytes, inside the tensor.
        nbytes: length in bytes.
        position: in bytes, where it stands in a slab that holds the whole model.
    """

    id: int
    tensor: int
    offset: int
    nbytes: int
    position: int

    @property
    def extent(self) -> int:
        """The bytes that the block takes in a slab and on the wire."""
        return -(-self.nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Model:
    """A `Model` is all tensors of a job, cut into blocks. It only ever grows at its end.

    Args:
        tensors: in order of declaration.
        block_bytes: the largest block, a multiple of `ALIGNMENT`.
    """

    tensors: tuple[Tensor, ...] = ()
    block_bytes: int = DEFAULT_BLOCK_BYTES

    def __post_init__(self) -> None:
        if self.block_bytes <= 0 or self.block_bytes % ALIGNMENT:
            raise ConfigurationError(f"block_bytes must be a positive multiple of {ALIGNMENT}, not {self.block_bytes}")

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, by id."""
        blocks: list[Block] = []
        position = 0
        for index, tensor in enumerate(self.tensors):
            size = self._block_size(tensor)
            for offset in range(0, max(tensor.nbytes, 1), size):
                block = Block(len(blocks), index, offset, min(size, tensor.nbytes - offset), position)
                blocks.append(block)
                position += block.extent
        return tuple(blocks)

    def _block_size(self, tensor: Tensor) -> int:
        """Return the bytes of a block, of whole rows where some fit: each row of the tensor is then on one server."""
        if not tensor.divisible or tensor.nbytes <= self.block_bytes:
            return max(tensor.nbytes, 1)
        rows = lcm(tensor.row_bytes, ALIGNMENT)
        return self.block_bytes // rows * rows or self.block_bytes

    def holds_rows(self, tensor: int) -> bool:
        """Return whether each of a tensor's blocks holds whole rows of it."""
        found, first = self.tensors[tensor], self.blocks[self.blocks_of[tensor].start]  # of which all have the size
        return bool(found.shape and found.nbytes) and not first.nbytes % found.row_bytes

    @cached_property
    def blocks_of(self) -> tuple[range, ...]:
        """The block ids of each tensor, by tensor index."""
        first: dict[int, int] = {}
        count = [0] * len(self.tensors)
        for block in self.blocks:
            first.setdefault(block.tensor, block.id)
            count[block.tensor] += 1
        return tuple(range(first[index], first[index] + count[index]) for index in range(len(self.tensors)))

    @cached_property
    def extents(self) -> NDArray[np.int64]:
        """The first block of each tensor, where it begins in a slab of the whole model, and its bytes; int64."""
        first = [blocks.start for blocks in self.blocks_of]
        rows = [(block, self.blocks[block].position, self.tensors[index].nbytes) for index, block in enumerate(first)]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def blocks_among(self, tensors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the block ids of some tensors, int64 on one axis, in the order of the tensors."""
        first = self.extents[:, 0]
        count = np.append(first[1:], len(self.blocks))[tensors] - first[tensors]
        before = np.cumsum(count) - count
        found: NDArray[np.int64] = np.repeat(first[tensors] - before, count) + np.arange(int(count.sum()))
        return found

    def whole(
        self, where: NDArray[np.int64], tensors: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the value of each tensor's first block, and whether all its blocks have that value.

        Args:
            where: a value of each block, of shape (blocks,).
            tensors: indices of tensors.

        Returns:
            The values and the answers, each of the shape of `tensors`.
        """
        first = self.extents[tensors, 0]
        if (where == where[:1]).all():
            return where[first], np.ones(len(tensors), dtype=bool)
        same = np.append(where[1:] == where[:-1], True)  # as the next block's
        changes = np.concatenate([[0], np.cumsum(~same)])  # before each block
        last = np.append(self.extents[1:, 0], len(self.blocks))[tensors] - 1
        return where[first], changes[last] == changes[first]

    @cached_property
    def index(self) -> dict[tuple[int, str], int]:
        """The index of each tensor, by (store, key)."""
        return {(tensor.store, tensor.key): number for number, tensor in enumerate(self.tensors)}

    @property
    def slab_bytes(self) -> int:
        """The bytes of a slab that holds the whole model."""
        return self.blocks[-1].position + self.blocks[-1].extent if self.blocks else 0

    def by_store(self, blocks: Iterable[int]) -> dict[int, list[int]]:
        """Return blocks by the key store that they belong to, in their order."""
        grouped: dict[int, list[int]] = {}
        for block in blocks:
            grouped.setdefault(self.tensors[self.blocks[block].tensor].store, []).append(block)
        return grouped

    def by_tensor(self, blocks: Iterable[int]) -> Iterator[list[int]]:
        """Yield ascending blocks, those of each tensor together."""
        for _, found in groupby(blocks, lambda block: self.blocks[block].tensor):
            yield list(found)

    def span(self, run: Run) -> slice:
        """Return the byte range of a run of blocks in a slab of the whole model."""
        first, last = self.blocks[run[0]], self.blocks[run[0] + run[1] - 1]
        return slice(first.position, last.position + last.extent)

    def extended(self, tensors: Sequence[Tensor]) -> "Model":
        """Return the model with those tensors added at its end that it does not know yet.

        Raises:
            ConfigurationError: a known key with another shape or dtype.
        """
        new: dict[tuple[int, str], Tensor] = {}
        for tensor in tensors:
            known_at = self.index.get((tensor.store, tensor.key))
            known = self.tensors[known_at] if known_at is not None else new.get((tensor.store, tensor.key))
            if known is None:
                new[tensor.store, tensor.key] = tensor
            elif (known.shape, known.dtype) != (tensor.shape, tensor.dtype):
                raise ConfigurationError(
                    f"key {tensor.name}: declared as {tensor.shape} {tensor.dtype}, but the job holds it as "
                    f"{known.shape} {known.dtype}; every worker must build the same model"
                )
        return Model(self.tensors + tuple(new.values()), self.block_bytes)


def runs(block_ids: Iterable[int]) -> Iterator[Run]:
    """Yield the runs of consecutive ids among ascending block ids."""
    first = count = 0
    for block in block_ids:
        if count and block == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = block, 1
    if count:
        yield first, count


def members(run_list: Iterable[Run]) -> Iterator[int]:
    """Yield the block ids of runs."""
    for first, count in run_list:
        yield from range(first, first + count)
