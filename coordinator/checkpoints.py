"""Checkpoints on storage: `ROOT/version-0000000123/`, where servers write files and the manifest comes last.

`manifest.json` alone makes a checkpoint valid. It is written under another name and renamed; one that is absent,
unreadable, or whose files are not all there with their sizes is torn, and skipped with a warning.

    {"format": 3, "version": V, "seed": ..., "block_bytes": ..., "tensors": [...], "optimizers": [...], "data": {...},
     "local_update": false, "configuration": {...}, "book": null,
     "blocks": {"0": {"file": "s0.bin", "crc32": ..., ...}}}

In an async or ssp job the number is only a name, and `book` says which batches are done.

Entries of `blocks` are the servers' own (`elastic_ps/server/checkpoint.py`), who also check the checksums when they
load them; here only the files' names and how long they must be are read.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import fsspec

from coordinator.batches import Book
from coordinator.records import decode, encode
from elastic_ps.core.configuration import Configuration
from elastic_ps.core.data import DataSpec
from elastic_ps.core.errors import CheckpointError, ConfigurationError
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.storage import MANIFEST, candidates

log = logging.getLogger(__name__)

FORMAT = 3
KEPT = 3
"""Complete checkpoints that are kept."""


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
            plain = {name: decode(kind, value[name]) for name, kind in _PLAIN.items()}
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
}


def write(url: str, manifest: Mapping[str, Any]) -> int:
    """Make the checkpoint at folder `url` valid, and drop the oldest beside it beyond `KEPT`.

    Returns:
        Bytes of its files, the manifest among them.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        system, path = fsspec.core.url_to_fs(url)
        system.makedirs(path, exist_ok=True)
        text = json.dumps(manifest).encode()
        with system.open(f"{path}/{MANIFEST}.part", "wb") as file:
            file.write(text)
        system.mv(f"{path}/{MANIFEST}.part", f"{path}/{MANIFEST}")
        files = {str(entry["file"]) for entry in manifest["blocks"].values()}
        total = len(text) + sum(int(system.size(f"{path}/{name}") or 0) for name in files)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise CheckpointError(f"cannot write the manifest of {url}: {error}") from error
    _prune(system, path)
    return total


def _prune(system: Any, path: str) -> None:
    """Keep the last `KEPT`. What cannot be deleted stays: nothing depends on it."""
    parent, _, own = path.rstrip("/").rpartition("/")
    try:
        names = sorted(str(entry).rstrip("/").rpartition("/")[2] for entry in system.ls(parent, detail=False))
        older = [name for name in names if name.startswith("version-") and name < own]
        complete = [name for name in older if system.exists(f"{parent}/{name}/{MANIFEST}")]
        kept = set(complete[-(KEPT - 1) :])
        for name in older:
            if name not in kept:
                system.rm(f"{parent}/{name}", recursive=True)
    except OSError as error:
        log.warning("old checkpoints under %s stay: %s", parent, error)


def read(url: str) -> dict[str, Any]:
    """The manifest of the checkpoint at folder `url`.

    Raises:
        CheckpointError: torn, or not there.
    """
    try:
        system, path = fsspec.core.url_to_fs(url)
        with system.open(f"{path}/{MANIFEST}", "rb") as file:
            value: dict[str, Any] = json.loads(file.read())
        Manifest.from_json(value)
        for name, least in _file_bytes(value["blocks"].values()).items():
            if not system.exists(f"{path}/{name}"):
                raise CheckpointError(f"its file {name} is missing")
            size = system.size(f"{path}/{name}")  # None: this storage does not tell
            if size is not None and size < least:
                raise CheckpointError(f"its file {name} is cut off: {size} bytes of {least}")
    except (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError, CheckpointError) as error:
        raise CheckpointError(f"{url} holds no complete checkpoint: {error}") from error
    return value


def _file_bytes(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How long each data file must be at least."""
    ends: dict[str, int] = {}
    for entry in entries:
        length = int(entry.get("value_bytes", 0)) + sum(int(size) for _, _, size in entry.get("states", ()))
        name = str(entry["file"])
        ends[name] = max(ends.get(name, 0), int(entry.get("offset", 0)) + length)
    return ends


def newest(*roots: str, urls: Iterable[str] = (), damaged: Iterable[str] = ()) -> tuple[str, dict[str, Any]]:
    """The newest complete checkpoint: of `urls`, newest first, then those that are a root or lie under one.

    Args:
        roots: folders, in the order to look in; "": none.
        urls: of checkpoints.
        damaged: those that servers could not load.

    Returns:
        Its folder's URL and its manifest.

    Raises:
        CheckpointError: there is none.
    """
    reasons = []
    known = frozenset(damaged)
    for url in dict.fromkeys([*urls, *(url for root in roots for url in _under(root))]):
        if url in known:
            reasons.append(f"{url} is damaged")
            continue
        try:
            return url, read(url)
        except CheckpointError as error:
            reasons.append(str(error))
            log.warning("skipped: %s", error)
    raise CheckpointError("; ".join(reasons) or f"no checkpoint under {' or '.join(filter(None, roots))}")


def _under(root: str) -> list[str]:
    if not root:
        return []
    try:
        return candidates(root)
    except FileNotFoundError:
        return []  # nothing has been written yet
    except (OSError, ValueError, ImportError) as error:
        log.warning("cannot look for checkpoints under %s: %s", root, error)
        return []
