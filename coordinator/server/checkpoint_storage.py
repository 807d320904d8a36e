"""Checkpoints lie on storage as `ROOT/version-0000000123-IDENTITY/`: servers write files, and the manifest comes last.

`manifest.json` alone makes a checkpoint valid. It is written under another name and renamed; one that is absent,
unreadable, or whose files are not all there with their sizes is torn, and skipped with a warning. A checkpoint belongs
to the job whose identity its manifest has; its name has it too, so that jobs may share a folder.

Servers check the checksums of blocks when they load them; here only the files' names, and how long they must be, are
read of the manifest's entries.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Set
from typing import Any

from coordinator.core.checkpoints.manifest import KEPT, Manifest
from coordinator.manifest_json import manifest_from_json, manifest_to_json
from elastic_ps.core.checkpoint_names import is_of
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.system import storage
from elastic_ps.system.storage import MANIFEST

log = logging.getLogger(__name__)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(url: str, manifest: Manifest, damaged: Set[str] = frozenset()) -> int:
    """Make the checkpoint at folder `url` valid, for good, and drop the job's oldest beside it beyond `KEPT`.

    Args:
        url: of the folder.
        manifest: to write.
        damaged: folders of those that nobody can load: they are none of the kept.

    Returns:
        Bytes of its files, the manifest among them.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        storage.make_folder(url)
        text = json.dumps(manifest_to_json(manifest)).encode()
        files = sorted({str(entry["file"]) for entry in manifest.blocks.values()})
        total = len(text) + sum(_size(url, name) for name in files)
        storage.publish(f"{url}/{MANIFEST}", text)
    except (StorageError, FileNotFoundError, TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"cannot write the manifest of {url}: {error}") from error
    _prune(url, manifest.identity, damaged)
    return total


def _size(url: str, name: str) -> int:
    """Return the bytes of a file that a node has written; 0: the storage does not tell."""
    try:
        return storage.size(f"{url}/{name}") or 0
    except FileNotFoundError:  # it has the folder, too: each machine one of its own
        told = f"{name.removesuffix('.bin')} says that it wrote {name}, which is not here"
        raise CheckpointError(f"{told}: give a folder that all machines share") from None


def _prune(url: str, identity: str, damaged: Set[str]) -> None:
    """Keep the last `KEPT` of this job. What cannot be deleted stays: nothing depends on it."""
    root, _, own = url.rpartition("/")
    kept = 1
    try:
        for other in storage.candidates(root):
            if is_of(other, identity) and folder_name(other) < own:
                kept += _keep(other, whole=other not in damaged, room=kept < KEPT)
    except (StorageError, FileNotFoundError) as error:
        log.warning("old checkpoints under %s stay: %s", root, error)


def _keep(url: str, whole: bool, room: bool) -> bool:
    """Return whether an older checkpoint is one of the kept, else drop it; one of which nobody can tell now stays."""
    try:
        if room and whole and storage.is_complete(url):
            return True
        storage.remove(url)
    except StorageError as error:
        log.warning("%s stays: %s", url, error)
    return False


def discard(url: str) -> None:
    """Remove what there is of a checkpoint that did not become one. What cannot be deleted stays, with a warning."""
    try:
        if not storage.is_complete(url):
            storage.remove(url)
    except (StorageError, FileNotFoundError) as error:
        log.warning("the rest of %s stays: %s", url, error)


def folder_name(url: str) -> str:
    """Return the name of a checkpoint's folder; those of one job are in the order of their versions."""
    return url.rpartition("/")[2]


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(url: str) -> Manifest:
    """Return the manifest of the checkpoint at folder `url`.

    Raises:
        CheckpointError: torn, or not there.
        StorageError: nobody can tell now.
    """
    try:
        manifest = read_manifest(url)
        for name, least in _file_bytes(manifest.blocks.values()).items():
            try:
                size = storage.size(f"{url}/{name}")
            except FileNotFoundError:
                raise CheckpointError(f"its file {name} is missing") from None
            if size is not None and size < least:
                raise CheckpointError(f"its file {name} is cut off: {size} bytes of {least}")
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, CheckpointError) as error:
        raise CheckpointError(f"{url} holds no complete checkpoint: {error}") from error
    return manifest


def read_manifest(url: str) -> Manifest:
    """Read a manifest, without its files. Raises as `read`, and what JSON of another shape leads to."""
    return manifest_from_json(json.loads(storage.read(f"{url}/{MANIFEST}")))


def _file_bytes(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how long each data file must be at least."""
    ends: dict[str, int] = {}
    for entry in entries:
        length = int(entry.get("value_bytes", 0)) + sum(int(size) for _, _, size in entry.get("states", ()))
        name = str(entry["file"])
        ends[name] = max(ends.get(name, 0), int(entry.get("offset", 0)) + length)
    return ends
