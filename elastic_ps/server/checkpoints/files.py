"""This module writes and reads a checkpoint's files.

A data file holds block after block, each its values' extent and then its state arrays. The JSON that goes to the
coordinator with SAVED says where, with checksums, and in an async or ssp job which batches each block has taken. The
coordinator's manifest, written last, alone makes a checkpoint valid.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import CheckpointError
from elastic_ps.core.long_text import packed
from elastic_ps.core.model import runs
from elastic_ps.core.segments import Array
from elastic_ps.server.blocks.checkpoint_snapshot import CopiedBlocks


class BlockFileWriter:
    """A `BlockFileWriter` writes one data file and notes what is where in it.

    Args:
        file: open for writing.
        name: the file's name in the checkpoint's folder.
    """

    def __init__(self, file: BinaryIO, name: str):
        self._file = file
        self._name = name
        self._offset = 0
        self._blocks: dict[str, dict[str, Any]] = {}
        self._applied: dict[NodeId, dict[int, int]] = defaultdict(dict)  # by block

    def write(self, copied: CopiedBlocks) -> None:
        """Append blocks, one after the other."""
        itemsize = copied.parts[0][1].itemsize
        start = 0
        blocks = zip(copied.versions, copied.counts, copied.extents, strict=True)
        for number, (version, count, extent) in enumerate(blocks, start=copied.segment[0]):
            low, high = start // itemsize, (start + extent) // itemsize
            self.write_block(number, version, count, [(name, array[low:high]) for name, array in copied.parts])
            start += extent
        for origin, numbers in copied.applied.items():
            self._applied[origin] |= dict(enumerate(numbers, start=copied.segment[0]))

    def write_block(self, block: int, version: int, count: int, parts: Sequence[tuple[str, Array]]) -> None:
        """Append one block.

        Args:
            block: its id.
            version: that it is saved at.
            count: how many updates its optimizer has made.
            parts: name, array: the values, with their padding, then the states.
        """
        data = b"".join(array.tobytes() for _, array in parts)
        self._file.write(data)
        self._blocks[str(block)] = {
            "version": version,
            "file": self._name,
            "offset": self._offset,
            "value_bytes": parts[0][1].nbytes,
            "states": [[name, array.dtype.name, array.nbytes] for name, array in parts[1:]],
            "count": count,
            "crc32": zlib.crc32(data),
        }
        self._offset += len(data)

    def contents(self, url: str) -> str:
        """Return the JSON of its blocks and of the checkpoint's folder, for SAVED, packed where it is long."""
        applied = {origin: list(_stretches(last)) for origin, last in sorted(self._applied.items())}
        told = {"url": url, "blocks": self._blocks, "bytes": self._offset, "applied": applied}
        return packed(json.dumps(told, separators=(",", ":")))


def _stretches(last: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield what a manifest has of an origin: first block, count, number of the last batch that these have taken."""
    taken = {block: number for block, number in last.items() if number >= 0}
    for first, count in runs(sorted(taken)):
        low = first
        for block in range(first, first + count):
            if block + 1 == first + count or taken[block + 1] != taken[low]:
                yield low, block + 1 - low, taken[low]
                low = block + 1


class BlockManifest:
    """A `BlockManifest` is the manifest of a checkpoint, as who fills blocks from it reads it.

    Args:
        text: the content of the file.

    Raises:
        CheckpointError: it is damaged.
    """

    def __init__(self, text: bytes):
        try:
            manifest = json.loads(text)
            self._version = int(manifest["version"])
            self._blocks: dict[str, dict[str, Any]] = dict(manifest["blocks"])
            self._applied = {
                str(origin): [(int(first), int(count), int(last)) for first, count, last in stretches]
                for origin, stretches in manifest.get("applied", {}).items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"its manifest cannot be read: {error!r}") from error

    @property
    def version(self) -> int:
        """The version of every block; in a job that is async or ssp only a number."""
        return self._version

    def entries(self, blocks: Iterable[int]) -> dict[str, list[tuple[int, "SavedBlock"]]]:
        """Return where blocks lie, by file, in the order in which they lie there.

        Raises:
            CheckpointError: a block is missing, or what the manifest says of it is damaged.
        """
        found: dict[str, list[tuple[int, SavedBlock]]] = {}
        for block in blocks:
            if str(block) not in self._blocks:
                raise CheckpointError(f"it lacks block {block}: it is not of this model")
            name, entry = self._entry(block)
            found.setdefault(name, []).append((block, entry))
        return {name: sorted(entries, key=lambda item: item[1].offset) for name, entries in found.items()}

    def _entry(self, block: int) -> tuple[str, "SavedBlock"]:
        known = self._blocks[str(block)]
        try:
            states = tuple((str(name), str(dtype), int(size)) for name, dtype, size in known["states"])
            version = int(known.get("version", self._version))  # not in those of before async: all had the manifest's
            return str(known["file"]), SavedBlock(
                int(known["offset"]),
                int(known["value_bytes"]),
                states,
                int(known["crc32"]),
                version,
                int(known["count"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"what its manifest says of block {block} cannot be read: {error!r}") from error

    def applied(self, block: int) -> dict[NodeId, list[int]]:
        """Return by origin the last batch that a block has taken."""
        return {
            origin: [last]
            for origin, stretches in self._applied.items()
            for first, count, last in stretches
            if first <= block < first + count
        }


StateExtent = tuple[str, str, int]
"""A `StateExtent` is a state array of a block: its name, dtype, and bytes."""


@dataclass(frozen=True)
class SavedBlock:
    """A `SavedBlock` says where a block lies in its file, and what it is there.

    Attributes:
        offset: where its first byte lies.
        value_bytes: bytes of its values, with their padding; its states lie behind them.
        states: in their order.
        crc32: of all its bytes.
        version: the block's version.
        count: how many updates its optimizer has made.
    """

    offset: int
    value_bytes: int
    states: tuple[StateExtent, ...]
    crc32: int
    version: int
    count: int

    @property
    def length(self) -> int:
        """The bytes of values and states."""
        return self.value_bytes + sum(size for _, _, size in self.states)

    def check_layout(self, block: int, key: str, value_bytes: int, states: Sequence[StateExtent]) -> None:
        """Check that it was saved as it is to be held.

        Args:
            block: its id.
            key: name of its tensor.
            value_bytes: bytes of its values, with their padding.
            states: that its optimizer has.

        Raises:
            CheckpointError: it was not.
        """
        if self.states != tuple(states) or self.value_bytes != value_bytes:
            raise CheckpointError(
                f"block {block} of key {key} was saved with other state ({_text(self.states)}) than its optimizer has "
                f"({_text(states)}): restore with the optimizer, block size and model that the job had"
            )

    def check(self, block: int, file: str, data: bytes) -> None:
        """Check that `data` is what was saved.

        Args:
            block: the block that was read.
            file: the file that it was read from.
            data: as it was read.

        Raises:
            CheckpointError: it is not.
        """
        if len(data) < self.length:
            raise CheckpointError(f"block {block} in {file} is damaged: {len(data)} bytes of {self.length} are there")
        if zlib.crc32(data) != self.crc32:
            raise CheckpointError(f"block {block} in {file} is damaged: its checksum differs")


def _text(states: Sequence[StateExtent]) -> str:
    """Return what states a block has, for people."""
    return ", ".join(f"{name} of {size} bytes, {dtype}" for name, dtype, size in states) or "none"
