"""A job that goes back takes its newest whole checkpoint, then what it began from or was told to restore.

The newest is the one that was written last: a job that went back to an older one saves lower versions than were there.
"""

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence

from coordinator.core.checkpoints.manifest import NO_AGE, CheckpointSearch, Manifest
from coordinator.server.checkpoint_storage import folder_name, read, read_manifest
from elastic_ps.core.checkpoint_names import is_of
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.system import storage

log = logging.getLogger(__name__)

_UNDATED = (0.0,)  # before all that have none, or only a version


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
    places = dict.fromkeys(filter(None, (search.folder, search.begun, search.restore)))
    raise CheckpointError("; ".join(reasons) or f"no checkpoint of this job under {' or '.join(places)}")


def _searched(search: CheckpointSearch, patient: bool) -> Iterator[tuple[str, bool]]:
    """Yield URLs, each once, and whether it must be the job's own."""
    seen = set()
    for url, is_own in itertools.chain(_own(search, patient), _named(search, patient)):
        if url not in seen:
            seen.add(url)
            yield url, is_own


def _own(search: CheckpointSearch, patient: bool) -> Iterator[tuple[str, bool]]:
    """Yield the job's own, and in their midst the one that it began from.

    A job that was taken back to an older one has others of its identity beside it, of higher versions, which were
    written before it began: what they hold was given up.
    """
    others = [url for url in _under(search.folder) if is_of(url, search.identity) and url not in search.known]
    ages = {url: NO_AGE if url in search.passed else _age(url, patient) for url in others}
    others.sort(key=ages.__getitem__)
    before = [url for url in others if -ages[url][0] < search.since]
    for url in _among_known(search, {url: ages[url] for url in others if url not in before}):
        yield url, True
    if search.begun:
        yield search.begun, False
    for url in before:
        if is_of(search.begun, search.identity) and folder_name(url) < folder_name(search.begun):
            yield url, True


def _ages_in_order(known: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Return the ages of what the job remembers, the last written first.

    What cannot be read now is as old as the one before: it keeps its place, and is waited for when its turn comes.
    """
    ages: dict[str, tuple[float, int]] = {}
    age = (-math.inf, 0)
    for url in known:
        found = _age(url, patient=False)
        age = found if found < _UNDATED else age
        ages[url] = age
    return ages


def _among_known(search: CheckpointSearch, others: Mapping[str, tuple[float, int]]) -> list[str]:
    """Return what the job remembers and what it does not, the last written first.

    A coordinator may have died between the manifest of its newest one and its journal. What does not say when it was
    written comes behind all that the job remembers, of which no manifest is read where there is no other one.
    """
    dated = {url: age for url, age in others.items() if age < _UNDATED}
    known = list(search.known)
    if dated:
        known = sorted([*known, *dated], key=(_ages_in_order(known) | dated).__getitem__)
    return [*known, *(url for url in others if url not in dated)]


def _named(search: CheckpointSearch, patient: bool) -> Iterator[tuple[str, bool]]:
    """Yield what was named to begin from, but not what was written after the job had begun from one of them."""
    ages = {url: _age(url, patient, others=not is_of(url, search.identity)) for url in _under(search.restore)}
    for url in sorted(ages, key=ages.__getitem__):
        if not (search.begun and search.since) or -ages[url][0] <= search.since:
            yield url, False


def _age(url: str, patient: bool, others: bool = False) -> tuple[float, int]:
    """Return a key that orders checkpoints of several jobs, the last written first; what is none comes last.

    So does one of the `others` that this job may not read: another user's among some that were named stays so.
    """
    try:
        manifest = read_manifest(url)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, CheckpointError, StorageError) as error:
        forbidden = others and isinstance(error.__cause__, PermissionError)
        if patient and isinstance(error, StorageError) and not forbidden:
            raise
        log.warning("skipped: %s holds no complete checkpoint: %s", url, error)
        return NO_AGE
    return manifest.age


def last_written(folder: str, identity: str) -> float:
    """Return when the last of a job's own in a folder was written, in unix seconds; 0: there is none.

    Raises:
        StorageError: the storage does not tell now.
    """
    own = (url for url in _under(folder) if is_of(url, identity))
    return max((-_age(url, patient=True)[0] for url in own), default=0.0)


def _under(root: str) -> list[str]:
    if not root:
        return []
    try:
        return storage.candidates(root)
    except FileNotFoundError:
        return []  # nothing has been written yet
