"""Checkpoints: a server's blocks, written while training goes on, and read again.

In a sync job they are at one version, the checkpoint's clock. Else there is none: each block is saved as it is.

A `Snapshot` is copy-on-write: an update that would change a block not yet written first copies it. Data files hold
block after block, each its values' extent and then its state arrays; the JSON that goes to the coordinator with
SAVED says where, with checksums. The coordinator's manifest, written last, alone makes a checkpoint valid.
"""

import json
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import CheckpointError
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Array
from elastic_ps.server.phases import Status
from elastic_ps.server.store import Store

_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class Image:
    """Blocks as they are saved, copied.

    Attributes:
        segment: of one treatment.
        versions: of each block.
        counts: of each block.
        extents: of each block, bytes of values.
        parts: name ("" for the values), array.
    """

    segment: Run
    versions: list[int]
    counts: list[int]
    extents: list[int]
    parts: list[tuple[str, Array]]


class Snapshot:
    """A server's blocks at version `clock`, or as they are now. Guarded by `Room.changed`.

    Args:
        store: of this server.
        clock: version to save.
        url: folder of the checkpoint, any fsspec URL.
        at_once: async and ssp: every block is saved at the version that it has, and the clock is only a name.
    """

    def __init__(self, store: Store, clock: int, url: str, at_once: bool = False):
        self.clock = clock
        self.url = url
        self._at_once = at_once
        self._store = store
        self._saved = np.zeros(len(store.status), dtype=bool)
        self._copied: deque[Image] = deque()

    def grow(self) -> None:
        """The model has new blocks."""
        self._saved = np.append(self._saved, np.zeros(len(self._store.status) - len(self._saved), dtype=bool))

    def before_update(self, segment: Run) -> None:
        """Blocks are about to leave the version that they have now."""
        if self._at_once or int(self._store.versions[segment[0]]) == self.clock:
            for run in self._store.segments(segment, self._saved):
                if not self._saved[run[0]]:
                    self._copied.append(self._copy(run))

    def _copy(self, segment: Run) -> Image:
        first, count = segment
        window = slice(first, first + count)
        self._saved[window] = True
        parts = [("", self._store.value(segment)), *self._store.states(segment).items()]
        return Image(
            segment,
            self._store.versions[window].tolist(),
            self._store.counts[window].tolist(),
            self._store.extents[window].tolist(),
            [(name, array.copy()) for name, array in parts],
        )

    def is_late(self) -> bool:
        """Whether a block has passed the clock without having been saved: the order came too late."""
        return not self._at_once and bool((self._unsaved() & (self._store.versions > self.clock)).any())

    def _unsaved(self) -> NDArray[np.bool_]:
        unsaved: NDArray[np.bool_] = ~self._saved & (self._store.status == Status.PRIMARY)
        return unsaved

    def _ready(self) -> NDArray[np.bool_]:
        """Blocks that can be saved now, by id."""
        return self._unsaved() if self._at_once else self._unsaved() & (self._store.versions == self.clock)

    def next_piece(self) -> Image | None:
        """Copy the next piece, or take one that an update has copied; None: nothing has reached the clock."""
        if self._copied:
            return self._copied.popleft()
        store = self._store
        ready = np.flatnonzero(self._ready())
        if not len(ready):
            return None
        run = next(store.alike(ready))
        first, count = next(store.segments(run))
        sizes = np.cumsum(store.extents[first : first + count])
        return self._copy((first, max(1, int(np.searchsorted(sizes, _PIECE_BYTES, side="right")))))

    @property
    def has_piece(self) -> bool:
        """Whether `next_piece` gives one."""
        return bool(self._copied) or bool(self._ready().any())

    def is_complete(self, undecided: bool) -> bool:
        """Whether every block of this server is written.

        Args:
            undecided: a plan is prepared: the blocks on their way here are their old owners' yet, who save them.
        """
        coming = not undecided and len(self._store.held(Status.FOLLOWER)) > 0
        return not self._copied and not coming and not self._unsaved().any()


class Writer:
    """Writes one data file and keeps its table of contents.

    Args:
        url: folder of the checkpoint.
        server: whose file.
    """

    def __init__(self, url: str, server: NodeId):
        self._fs, folder = fsspec.url_to_fs(url)
        self._fs.makedirs(folder, exist_ok=True)
        self._name = f"{server}.bin"
        self._file = self._fs.open(f"{folder}/{self._name}", "wb")
        self._offset = 0
        self._blocks: dict[str, dict[str, Any]] = {}

    def write(self, image: Image) -> None:
        """Append an image's blocks, one after the other."""
        itemsize = image.parts[0][1].itemsize
        start = 0
        blocks = zip(image.versions, image.counts, image.extents, strict=True)
        for number, (version, count, extent) in enumerate(blocks):
            low, high = start // itemsize, (start + extent) // itemsize
            data = b"".join(array[low:high].tobytes() for _, array in image.parts)
            self._file.write(data)
            self._blocks[str(image.segment[0] + number)] = {
                "version": version,
                "file": self._name,
                "offset": self._offset,
                "value_bytes": extent,
                "states": [[name, array.dtype.name, (high - low) * array.itemsize] for name, array in image.parts[1:]],
                "count": count,
                "crc32": zlib.crc32(data),
            }
            self._offset += len(data)
            start += extent

    def close(self) -> str:
        """Finish the file. Returns the JSON of its blocks, for SAVED."""
        self._file.close()
        return json.dumps({"blocks": self._blocks, "bytes": self._offset}, separators=(",", ":"))


def restore(store: Store, manifest_url: str, blocks: Sequence[int]) -> None:
    """Fill blocks, for which there is room, from a checkpoint.

    Args:
        store: of this server.
        manifest_url: of the manifest, which lies beside the data files.
        blocks: ids.

    Raises:
        CheckpointError: a block is missing or damaged, or was saved with another optimizer.
    """
    try:
        _restore(store, manifest_url, blocks)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise CheckpointError(f"it cannot be read: {error!r}") from error


def _restore(store: Store, manifest_url: str, blocks: Sequence[int]) -> None:
    fs, path = fsspec.url_to_fs(manifest_url)
    with fs.open(path, "rb") as file:
        manifest = json.load(file)
    version, table = int(manifest["version"]), manifest["blocks"]
    folder = path.rsplit("/", 1)[0]
    by_file: dict[str, list[int]] = {}
    for block in blocks:
        if str(block) not in table:
            raise CheckpointError(f"it lacks block {block}: it is not of this model")
        by_file.setdefault(table[str(block)]["file"], []).append(block)
    for name, ids in by_file.items():
        with fs.open(f"{folder}/{name}", "rb") as file:
            for block in sorted(ids, key=lambda block: int(table[str(block)]["offset"])):
                _load(store, file, block, table[str(block)], version)


def _load(store: Store, file: Any, block: int, entry: dict[str, Any], version: int) -> None:
    wanted = [[name, array.dtype.name, array.nbytes] for name, array in store.states((block, 1)).items()]
    if entry["states"] != wanted or entry["value_bytes"] != int(store.extents[block]):
        raise CheckpointError(
            f"block {block} of key {store.tensor(block).name} was saved with other state ({entry['states']}) than its "
            f"optimizer has ({wanted}): restore with the optimizer, block size and model that the job had"
        )
    file.seek(entry["offset"])
    data = file.read(entry["value_bytes"] + sum(size for _, _, size in entry["states"]))
    if zlib.crc32(data) != entry["crc32"]:
        raise CheckpointError(f"block {block} in {entry['file']} is damaged: its checksum differs")
    own = int(entry.get("version", version))  # not in those that are older than async: all blocks had the manifest's
    store.load((block, 1), np.frombuffer(data, dtype=np.uint8), own, [entry["count"]], {})
    store.status[block] = Status.PRIMARY
