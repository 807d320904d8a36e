"""Checkpoints lie on storage as `ROOT/version-0000000123-IDENTITY/`: servers write files, and the manifest comes last.

`manifest.json` alone makes a checkpoint valid. It is written under another name and renamed; one that is absent,
unreadable, or whose files are not all there with their sizes is torn, and skipped with a warning. A checkpoint belongs
to the job whose identity its manifest has; its name has it too, so that jobs may share a folder.

Servers check the checksums of blocks when they load them; here only the files' names, and how long they must be, are
read of the manifest's entries.
"""

import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from coordinator.core.checkpoints.manifest import KEPT, CheckpointSearch, Manifest
from coordinator.server.manifest_json import manifest_from_json, manifest_to_json
from elastic_ps.core.checkpoint_names import is_of
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.system import storage
from elastic_ps.system.storage import MANIFEST

log = logging.getLogger(__name__)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(url: str, manifest: Manifest) -> int:
    """Make the checkpoint at folder `url` valid, for good, and drop the job's oldest beside it beyond `KEPT`.

    Returns:
        Bytes of its files, the manifest among them.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        storage.make_folder(url)
        text = json.dumps(manifest_to_json(manifest)).encode()
        files = {str(entry["file"]) for entry in manifest.blocks.values()}
        total = len(text) + sum(storage.size(f"{url}/{name}") or 0 for name in files)
        storage.publish(f"{url}/{MANIFEST}", text)
    except (StorageError, FileNotFoundError, TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"cannot write the manifest of {url}: {error}") from error
    _prune(url, manifest.identity)
    return total


def _prune(url: str, identity: str) -> None:
    """Keep the last `KEPT` of this job. What cannot be deleted stays: nothing depends on it."""
    root, _, own = url.rpartition("/")
    try:
        older = [other for other in storage.candidates(root) if is_of(other, identity) and _name(other) < own]
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


def read(url: str) -> Manifest:
    """Return the manifest of the checkpoint at folder `url`.

    Raises:
        CheckpointError: torn, or not there.
        StorageError: nobody can tell now.
    """
    try:
        manifest = _manifest(url)
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


def _manifest(url: str) -> Manifest:
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


def find(search: CheckpointSearch, patient: bool = True) -> tuple[str, Manifest]:
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
            manifest = read(url)
            if own and manifest.identity not in ("", search.identity):
                raise CheckpointError(f"{url} is another job's, {manifest.identity}")
        except (CheckpointError, StorageError) as error:
            if patient and isinstance(error, StorageError):
                raise
            reasons.append(str(error))
            log.warning("skipped: %s", error)
        else:
            return url, manifest
    places = filter(None, (search.folder, search.begun, search.restore))
    raise CheckpointError("; ".join(reasons) or f"no checkpoint of this job under {' or '.join(places)}")


def _searched(search: CheckpointSearch, patient: bool) -> Iterator[tuple[str, bool]]:
    """Yield URLs, each once, and whether it must be the job's own."""
    own = (url for url in _under(search.folder) if is_of(url, search.identity))
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
    """Return a key that orders checkpoints of several jobs, the last written first; what is none comes last."""
    try:
        manifest = _manifest(url)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, CheckpointError, StorageError) as error:
        if patient and isinstance(error, StorageError):
            raise
        log.warning("skipped: %s holds no complete checkpoint: %s", url, error)
        return 0.0, 0
    return -manifest.written, -manifest.version


def _under(root: str) -> list[str]:
    if not root:
        return []
    try:
        return storage.candidates(root)
    except FileNotFoundError:
        return []  # nothing has been written yet
