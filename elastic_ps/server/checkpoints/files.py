"""This module writes and reads a checkpoint's files.

A data file holds block after block, each its values' extent and then its state arrays. The JSON that goes to the
coordinator with SAVED says where, with checksums, and in an async or ssp job which batches each block has taken. The
coordinator's manifest, written last, alone makes a checkpoint valid.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import CheckpointError
from elastic_ps.core.model import runs
from elastic_ps.server.blocks.block_store import ServerBlockStore
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
        for number, (version, count, extent) in enumerate(blocks):
            low, high = start // itemsize, (start + extent) // itemsize
            data = b"".join(array[low:high].tobytes() for _, array in copied.parts)
            self._file.write(data)
            self._blocks[str(copied.segment[0] + number)] = {
                "version": version,
                "file": self._name,
                "offset": self._offset,
                "value_bytes": extent,
                "states": [[name, array.dtype.name, (high - low) * array.itemsize] for name, array in copied.parts[1:]],
                "count": count,
                "crc32": zlib.crc32(data),
            }
            self._offset += len(data)
            start += extent
        for origin, numbers in copied.applied.items():
            self._applied[origin] |= dict(enumerate(numbers, start=copied.segment[0]))

    def contents(self) -> str:
        """Return the JSON of its blocks, for SAVED."""
        applied = {origin: list(_stretches(last)) for origin, last in sorted(self._applied.items())}
        return json.dumps({"blocks": self._blocks, "bytes": self._offset, "applied": applied}, separators=(",", ":"))


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
    """A `BlockManifest` is the manifest of a checkpoint, as a server reads it.

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

    def entries(self, store: ServerBlockStore, blocks: Sequence[int]) -> dict[str, list[tuple[int, "SavedBlock"]]]:
        """Return where blocks lie, by file, in the order in which they lie there.

        Raises:
            CheckpointError: a block is missing, or was saved with another optimizer.
        """
        found: dict[str, list[tuple[int, SavedBlock]]] = {}
        for block in blocks:
            if str(block) not in self._blocks:
                raise CheckpointError(f"it lacks block {block}: it is not of this model")
            name, entry = self._entry(store, block)
            found.setdefault(name, []).append((block, entry))
        return {name: sorted(entries, key=lambda item: item[1].offset) for name, entries in found.items()}

    def _entry(self, store: ServerBlockStore, block: int) -> tuple[str, "SavedBlock"]:
        known = self._blocks[str(block)]
        wanted = [[name, array.dtype.name, array.nbytes] for name, array in store.states((block, 1)).items()]
        try:
            if known["states"] != wanted or known["value_bytes"] != int(store.extents[block]):
                raise CheckpointError(
                    f"block {block} of key {store.tensor(block).name} was saved with other state ({known['states']}) "
                    f"than its optimizer has ({wanted}): restore with the optimizer, block size and model that the job "
                    "had"
                )
            length = known["value_bytes"] + sum(size for _, _, size in known["states"])
            version = int(known.get("version", self._version))  # not in those of before async: all had the manifest's
            entry = SavedBlock(int(known["offset"]), length, int(known["crc32"]), version, int(known["count"]))
            return str(known["file"]), entry
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


@dataclass(frozen=True)
class SavedBlock:
    """A `SavedBlock` says where a block lies in its file, and what it is there.

    Attributes:
        offset: where its first byte lies.
        length: bytes of values and state.
        crc32: of these.
        version: the block's version.
        count: how many updates its optimizer has made.
    """

    offset: int
    length: int
    crc32: int
    version: int
    count: int

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
