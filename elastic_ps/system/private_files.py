"""This module makes folders and files that their owner alone can read, whatever the umask is."""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from elastic_ps.core.errors import ConfigurationError

FOLDER, FILE = 0o700, 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_folder(path: Path, own: Collection[str]) -> None:
    """Make a folder of this user's alone, or take one that there is.

    One that others can look into becomes this user's alone where nothing but our own files is in it. Where there is
    anything else, as in a home folder or /tmp, its mode is somebody's decision and stays.

    Args:
        path: of the folder.
        own: names of ours, or how they begin.

    Raises:
        ConfigurationError: it is another user's, or others can look into it and it is not ours alone.
        OSError: it cannot be made or used.
    """
    path.mkdir(parents=True, exist_ok=True, mode=FOLDER)
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise ConfigurationError(f"{path} is another user's: give a folder of your own")
    if not found.st_mode & _OTHERS:
        return
    others = sorted(entry for entry in os.listdir(path) if not entry.startswith(tuple(own)))
    if others:
        raise ConfigurationError(
            f"{path} can be read by others, and holds more than is ours ({others[0]}): give a folder of its own, or "
            f"first chmod 700 {path}"
        )
    path.chmod(FOLDER)


@contextmanager
def private_files() -> Iterator[int]:
    """Make what this process makes meanwhile its user's alone; yields the umask of before, for programs of others."""
    before = os.umask(_OTHERS)
    try:
        yield before
    finally:
        os.umask(before)


def private_file(path: Path) -> None:
    """Make an empty file of this user's alone, or take what there is from others. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & _OTHERS:
            os.fchmod(descriptor, FILE)
    finally:
        os.close(descriptor)
