"""Checkpoints on storage: `ROOT/version-0000000123-IDENTITY/`, where servers write files and the manifest comes last.

`manifest.json` alone makes a checkpoint valid. It is written under another name and renamed; one that is absent,
unreadable, or whose files are not all there with their sizes is torn, and skipped with a warning. A checkpoint belongs
to the job whose identity its manifest has; its name has it too, so that jobs may share a folder.

    {"format": 3, "identity": "...", "written": unix seconds, "version": V, "seed": ..., "block_bytes": ...,
     "tensors": [...], "optimizers": [...], "data": {...}, "local_update": false, "configuration": {...}, "book": null,
     "applied": {}, "blocks": {"0": {"file": "s0.bin", "crc32": ..., ...}}}

In an async or ssp job the number is only a name, `book` says which batches are done, and `applied` which blocks hold
some of those that are not: by origin [first block, count, number of the last batch]. Manifests of before jobs had an
identity have none, nor `written` and `applied`; they are nobody's, and are read where they are named.

Entries of `blocks` are the servers' own (`elastic_ps/server/checkpoints/files.py`), who also check the checksums when
they load them; here only the files' names, how long they must be and the blocks' versions are read.
"""

import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.core.batches.book_of_batches import Book
from coordinator.server.dataclass_json import decode, encode
from elastic_ps.core.configuration import Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import CheckpointError, ConfigurationError, StorageError
from elastic_ps.core.model import Model, Tensor
from elastic_ps.system import storage
from elastic_ps.system.storage import MANIFEST

log = logging.getLogger(__name__)

FORMAT = 3
KEPT = 3
"""Complete checkpoints of a job that are kept."""

Stretch = tuple[int, int, int]
"""First block, count, and what is so of them."""


@dataclass(frozen=True)
class Manifest:
    """What makes a checkpoint.

    Attributes:
        version: of every block; only a number in an async or ssp job.
        seed: of the data order.
        model: tensors and blocks.
        optimizers: JSON by store.
        data: None: static.
        local_update: optimizers lived in the workers.
        configuration: that wrote it.
        book: of batches, which is consistent with each block by itself only; None: a sync job.
        blocks: the servers' entries by block id.
        identity: of the job that wrote it; "": of before jobs had one.
        written: unix seconds; 0: of before.
        applied: by origin the last batch that blocks have taken of it, of origins whose batches the book gives again.
    """

    version: int
    seed: int
    model: Model
    optimizers: tuple[str, ...]
    data: DataSpec | None
    local_update: bool
    configuration: Configuration
    book: Book | None
    blocks: Mapping[int, Mapping[str, Any]]
    identity: str = ""
    written: float = 0.0
    applied: Mapping[NodeId, tuple[Stretch, ...]] = field(default_factory=dict)

    @property
    def floors(self) -> tuple[Stretch, ...]:
        """Return the version of each block, as stretches of blocks that have the same: what its updates began at."""
        return stretches([int(self.blocks[block].get("version", self.version)) for block in sorted(self.blocks)])

    def to_json(self) -> dict[str, Any]:
        """For `manifest.json`."""
        value = {name: encode(getattr(self, name)) for name in _PLAIN}
        return {
            "format": FORMAT,
            **value,
            "block_bytes": self.model.block_bytes,
            "tensors": encode(self.model.tensors),
            "blocks": {str(block): dict(entry) for block, entry in sorted(self.blocks.items())},
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Manifest":
        """Decode.

        Raises:
            CheckpointError: not a manifest of this format.
        """
        try:
            if value["format"] != FORMAT:
                raise CheckpointError(f"a manifest of format {value['format']}, this program reads {FORMAT}")
            model = Model(decode(tuple[Tensor, ...], value["tensors"]), int(value["block_bytes"]))
            plain = {
                name: decode(kind, value[name]) for name, kind in _PLAIN.items() if name in value or name not in _LATER
            }
            blocks = {int(block): entry for block, entry in value["blocks"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, ConfigurationError) as error:
            raise CheckpointError(f"not a manifest: {error!r}") from error
        if sorted(blocks) != list(range(len(model.blocks))):
            raise CheckpointError(f"{len(blocks)} blocks, but its tensors have {len(model.blocks)}")
        return Manifest(model=model, blocks=blocks, **plain)


_PLAIN: dict[str, Any] = {
    "version": int,
    "seed": int,
    "optimizers": tuple[str, ...],
    "data": DataSpec | None,
    "local_update": bool,
    "configuration": Configuration,
    "book": Book | None,
    "identity": str,
    "written": float,
    "applied": Mapping[NodeId, tuple[Stretch, ...]],
}
_LATER = frozenset({"identity", "written", "applied"})  # than the first manifests of this format


def stretches(values: Sequence[int]) -> tuple[Stretch, ...]:
    """Return a value of each block, by its id, as stretches of the same."""
    found: list[Stretch] = []
    for block, value in enumerate(values):
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], found[-1][1] + 1, value)
        else:
            found.append((block, 1, value))
    return tuple(found)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(url: str, manifest: Mapping[str, Any]) -> int:
    """Make the checkpoint at folder `url` valid, for good, and drop the job's oldest beside it beyond `KEPT`.

    Returns:
        Bytes of its files, the manifest among them.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        storage.make_folder(url)
        text = json.dumps(manifest).encode()
        files = {str(entry["file"]) for entry in manifest["blocks"].values()}
        total = len(text) + sum(storage.size(f"{url}/{name}") or 0 for name in files)
        storage.publish(f"{url}/{MANIFEST}", text)
    except (StorageError, FileNotFoundError, TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"cannot write the manifest of {url}: {error}") from error
    _prune(url, str(manifest["identity"]))
    return total


def _prune(url: str, identity: str) -> None:
    """Keep the last `KEPT` of this job. What cannot be deleted stays: nothing depends on it."""
    root, _, own = url.rpartition("/")
    try:
        older = [other for other in storage.candidates(root) if storage.is_of(other, identity) and _name(other) < own]
        complete = [other for other in older if storage.is_complete(other)]
        for other in older:
            if other not in complete[: KEPT - 1]:
                storage.remove(other)
    except (StorageError, FileNotFoundError) as error:
        log.warning("old checkpoints under %s stay: %s", root, error)


def discard(url: str) -> None:
    """Remove what there is of a checkpoint that did not become one. What cannot be deleted stays, with a warning."""
    try:
        if not storage.is_complete(url):
            storage.remove(url)
    except (StorageError, FileNotFoundError) as error:
        log.warning("the rest of %s stays: %s", url, error)


def _name(url: str) -> str:
    return url.rpartition("/")[2]


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(url: str) -> dict[str, Any]:
    """The manifest of the checkpoint at folder `url`.

    Raises:
        CheckpointError: torn, or not there.
        StorageError: nobody can tell now.
    """
    try:
        value = _manifest(url)
        for name, least in _file_bytes(value["blocks"].values()).items():
            try:
                size = storage.size(f"{url}/{name}")
            except FileNotFoundError:
                raise CheckpointError(f"its file {name} is missing") from None
            if size is not None and size < least:
                raise CheckpointError(f"its file {name} is cut off: {size} bytes of {least}")
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, CheckpointError) as error:
        raise CheckpointError(f"{url} holds no complete checkpoint: {error}") from error
    return value


def _manifest(url: str) -> dict[str, Any]:
    """Its text; what it says of files is not looked at. Raises as `read`, and what JSON of another shape leads to."""
    value: dict[str, Any] = json.loads(storage.read(f"{url}/{MANIFEST}"))
    Manifest.from_json(value)
    return value


def _file_bytes(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How long each data file must be at least."""
    ends: dict[str, int] = {}
    for entry in entries:
        length = int(entry.get("value_bytes", 0)) + sum(int(size) for _, _, size in entry.get("states", ()))
        name = str(entry["file"])
        ends[name] = max(ends.get(name, 0), int(entry.get("offset", 0)) + length)
    return ends


@dataclass(frozen=True)
class Search:
    """Which checkpoints a job may load: its own, and where it has none, what it was told to begin from.

    Attributes:
        identity: of the job.
        known: its own, as it remembers, newest first.
        folder: where its own lie; "": nowhere.
        begun: the checkpoint that it began from; "": none.
        restore: a checkpoint that was named to begin from, or a folder of some; "": none.
        passed: those that servers could not load.
    """

    identity: str
    known: tuple[str, ...] = ()
    folder: str = ""
    begun: str = ""
    restore: str = ""
    passed: frozenset[str] = frozenset()


def find(search: Search, patient: bool = True) -> tuple[str, dict[str, Any]]:
    """Return the checkpoint to load.

    Args:
        search: among which.
        patient: one whose manifest cannot be read now is not passed over.

    Returns:
        Its folder's URL and its manifest.

    Raises:
        CheckpointError: there is none.
        StorageError: the storage does not tell now.
    """
    reasons: list[str] = []
    for url, own in _searched(search, patient):
        if url in search.passed:
            reasons.append(f"{url} could not be loaded")
            continue
        try:
            value = read(url)
            if own and value.get("identity", "") not in ("", search.identity):
                raise CheckpointError(f"{url} is another job's, {value['identity']}")
        except (CheckpointError, StorageError) as error:
            if patient and isinstance(error, StorageError):
                raise
            reasons.append(str(error))
            log.warning("skipped: %s", error)
        else:
            return url, value
    places = filter(None, (search.folder, search.begun, search.restore))
    raise CheckpointError("; ".join(reasons) or f"no checkpoint of this job under {' or '.join(places)}")


def _searched(search: Search, patient: bool) -> Iterator[tuple[str, bool]]:
    """URLs, each once, and whether it must be the job's own."""
    own = (url for url in _under(search.folder) if storage.is_of(url, search.identity))
    seen = set()
    for url in itertools.chain(search.known, own):
        if url not in seen:
            seen.add(url)
            yield url, True
    if search.begun:
        yield search.begun, False
    for url in sorted(_under(search.restore), key=lambda url: _age(url, patient)):
        if url not in seen and url != search.begun:
            yield url, False


def _age(url: str, patient: bool) -> tuple[float, int]:
    """Orders checkpoints of several jobs, the last written first; what is none comes last."""
    try:
        value = _manifest(url)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, CheckpointError, StorageError) as error:
        if patient and isinstance(error, StorageError):
            raise
        log.warning("skipped: %s holds no complete checkpoint: %s", url, error)
        return 0.0, 0
    return -float(value.get("written", 0.0)), -int(value["version"])


def _under(root: str) -> list[str]:
    if not root:
        return []
    try:
        return storage.candidates(root)
    except FileNotFoundError:
        return []  # nothing has been written yet
