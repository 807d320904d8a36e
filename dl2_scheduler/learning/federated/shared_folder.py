"""This module keeps the folder in which clusters tell each other what they found out: a file of each, whole or not.

Nothing in it is taken on trust: a file that is damaged, too large, too old or of anything else is ignored, and named
once in the log.
"""

import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.federated.knowledge import ClusterKnowledge, encoded, read_knowledge
from elastic_ps.system.bounded_files import read_text
from elastic_ps.system.private_files import FILE, FOLDER

log = logging.getLogger(__name__)

MOST_CLUSTERS = 16
"""Others whose files are read, the latest."""

MOST_DAYS = 30.0
"""Age of a file that still counts: hardware and scripts change."""

_ID_FILE = "federation-id"  # in the cluster's folder
_ID = re.compile("[0-9a-f]{16}")
_FILE = re.compile(r"cluster-([0-9a-f]{16})\.npz")
_PARTIAL = re.compile(r"\.cluster-[0-9a-f]{16}\.partial")
_MOST_ENTRIES = 1000  # of the folder that are looked at
_MOST_NAME, _MOST_REASON = 80, 200  # characters
_DAY = 86_400.0
_DAYS_AHEAD = 1.0  # that another's clock may be
_READABLE = 0o044
_TWICE = "another cluster writes it too: delete federation-id in the folder of the one that is a copy"

_Stamp = tuple[int, int, int]  # of a file's version: inode, time, size


class SharedFolder:
    """A `SharedFolder` is seen by one cluster, which has a file of its own in it.

    Args:
        path: of the folder.
        cluster: id of the cluster.
        now: unix seconds.

    Attributes:
        ignored: files that were ignored when it looked last, and why.
    """

    def __init__(self, path: Path, cluster: str, now: Callable[[], float] = time.time):
        self._path, self._cluster, self._now = path, cluster, now
        self._own = f"cluster-{cluster}.npz"
        self._written: _Stamp | None = None
        self._read: dict[str, tuple[_Stamp, ClusterKnowledge | str]] = {}
        self.ignored: dict[str, str] = {}

    def others(self) -> list[ClusterKnowledge]:
        """Return what the other clusters tell; a file is read again only when it has changed.

        Raises:
            OSError: the folder cannot be read.
        """
        found, ignored = [], {}
        stamps = self._stamps()
        others = (name for name in stamps if _FILE.fullmatch(name) and name != self._own)
        latest = sorted(others, key=lambda name: -stamps[name][1])[:MOST_CLUSTERS]
        for name, stamp in stamps.items():
            told = self._told(name, stamp, latest)
            if isinstance(told, ClusterKnowledge):
                found.append(told)
            elif told:
                ignored[name] = told
        for name, why in ignored.items():
            if self.ignored.get(name) != why:
                log.warning("%s in %s is ignored: %s", name[:_MOST_NAME], self._path, why)
        self.ignored = ignored
        self._read = {name: read for name, read in self._read.items() if name in latest}  # each may take megabytes
        return found

    def publish(self, knowledge: ClusterKnowledge) -> None:
        """Write one's own file, whole or not at all; who may read the folder may read it.

        Raises:
            BadInput: it would be too large for others.
            OSError: it cannot be written.
        """
        data = encoded(knowledge)
        partial = self._path / f".cluster-{self._cluster}.partial"
        partial.unlink(missing_ok=True)  # of a process that died; or a link of somebody's, which is not followed
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(partial, flags, FILE), "wb") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(self._path.stat().st_mode) & _READABLE | FILE)
            file.write(data)
        partial.replace(self._path / self._own)
        self._written = _stamp((self._path / self._own).lstat())

    def _stamps(self) -> dict[str, _Stamp]:
        """Return what is in the folder by name, but for what is half written."""
        found = {}
        with os.scandir(self._path) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                with suppress(FileNotFoundError):  # it was renamed meanwhile
                    found[entry.name] = _stamp(entry.stat(follow_symlinks=False))
        return {name: found[name] for name in sorted(found) if not _PARTIAL.fullmatch(name)}

    def _told(self, name: str, stamp: _Stamp, latest: Collection[str]) -> ClusterKnowledge | str:
        """Return what a file tells, or why it is ignored; "": it is one's own."""
        if name == self._own:
            return _TWICE if self._written not in (None, stamp) else ""
        if not (found := _FILE.fullmatch(name)):
            return "it is no cluster's: give clusters a folder of their own"
        if name not in latest:
            return f"{MOST_CLUSTERS} others are newer"
        if name not in self._read or self._read[name][0] != stamp:
            self._read[name] = stamp, self._opened(name, found[1])
        told = self._read[name][1]
        if isinstance(told, str):
            return told
        days = (self._now() - told.at) / _DAY
        if not -_DAYS_AHEAD <= days <= MOST_DAYS:
            return f"it is {days:.0f} days old" if days > 0 else f"its clock is {-days:.0f} days ahead"
        return told

    def _opened(self, name: str, cluster: str) -> ClusterKnowledge | str:
        try:
            found = read_knowledge(self._path / name)
        except BadInput as error:
            return str(error)[:_MOST_REASON]
        return found if found.cluster == cluster else "it tells of another cluster than its name"


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_ino, found.st_mtime_ns, found.st_size


def federation_id(folder: Path) -> str:
    """Return the id by which a cluster is known to others, which it keeps in its folder.

    Raises:
        OSError: it can neither be read nor written.
    """
    file = folder / _ID_FILE
    with suppress(FileNotFoundError, UnicodeDecodeError):
        if _ID.fullmatch(found := read_text(file, _MOST_NAME).strip()):
            return found
    made = secrets.token_hex(8)
    file.write_text(made + "\n")
    return made


def shared_folder(path: Path) -> Path:
    """Return the absolute path of a folder that may be shared, which is made where there is none.

    Raises:
        BadInput: it is none, cannot be used, or everybody may write there.
    """
    path = path.absolute()
    try:
        path.mkdir(mode=FOLDER, exist_ok=True)
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise BadInput(f"--share-with: {path} cannot be shared ({error}): give a folder that can be written") from error
    if mode & stat.S_IWOTH:
        raise BadInput(f"--share-with: everybody may write to {path}: give another folder, or first chmod o-w {path}")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise BadInput(f"--share-with: {path} cannot be read and written: give a folder that can")
    return path
