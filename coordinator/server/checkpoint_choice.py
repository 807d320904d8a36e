"""A job that goes back takes its newest whole checkpoint, then what it began from or was told to restore."""

import itertools
import logging
from collections.abc import Iterator

from coordinator.core.checkpoints.manifest import CheckpointSearch, Manifest
from coordinator.server.checkpoint_storage import read, read_manifest
from elastic_ps.core.checkpoint_names import is_of
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.system import storage

log = logging.getLogger(__name__)


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
        manifest = read_manifest(url)
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
