"""This module reads and writes checkpoints: folders named `version-...` in a folder, at any fsspec URL.

What is written survives a power cut before the call that wrote it returns: on a local file system files and folders are
synced (folders where it can do that), elsewhere the storage's own promise is that a closed file stays.
"""

import errno
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from elastic_ps.core.errors import ElasticError, StorageError

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
"""The file that makes a folder a checkpoint; written last."""

IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a job's identity looks like: it is part of its checkpoints' names."""

_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""What file systems say that sync no folders, as some of networks and of user space do: names stay as they promise."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR)

_GONE = (404, 410)
"""HTTP's answers about what is not there."""

_LOCAL = (None, "file", "local")
"""Protocols of paths of this machine; None: none is named."""


def new_identity() -> str:
    """Return an identity for a training run that nobody has named."""
    return secrets.token_hex(6)


def check_protocol(url: str) -> None:
    """Do nothing where programs for a URL's storage are installed; nothing is opened.

    Raises:
        ValueError, ImportError: there are none, with what to do.
    """
    *outer, last = url.split("::")
    for protocol in [*(link.partition("://")[0] for link in outer), fsspec.core.split_protocol(last)[0] or "file"]:
        fsspec.get_filesystem_class(protocol)


@contextmanager
def asked(url: str) -> Iterator[None]:
    """Turn whatever a storage raises (boto's errors are no OSError) into one error of ours.

    Raises:
        FileNotFoundError: there is no such file or folder.
        StorageError: anything else.
    """
    try:
        yield
    except ElasticError:
        raise
    except Exception as error:
        if not _is_absence(error):
            raise StorageError(f"{url} cannot be used: {str(error) or repr(error)}") from error
        if isinstance(error, FileNotFoundError):
            raise
        raise FileNotFoundError(*error.args) from error


def _is_absence(error: Exception) -> bool:
    """Return whether a storage says by an error that something is not there.

    fsspec's of HTTP raises FileNotFoundError whatever the answer was, and where there was none: the cause tells.
    """
    cause = error.__cause__
    if isinstance(cause, TimeoutError) or type(cause).__module__.startswith("aiohttp"):
        return getattr(cause, "status", None) in _GONE
    number = error.errno if isinstance(error, OSError) else None  # which is all that SMB's have
    return number in _ABSENT or isinstance(error, FileNotFoundError | NotADirectoryError)


def located(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there. What it knows of folders from earlier is not believed."""
    system, path = fsspec.core.url_to_fs(url)
    system.invalidate_cache()
    return system, path


_T = TypeVar("_T")


def patiently(act: Callable[[], _T], seconds: float, over: Callable[[], bool] = lambda: False) -> _T:
    """Return what `act` returns; while the storage does not do what it asks for, it is done again, with growing pauses.

    Args:
        act: asks the storage.
        seconds: after which its error is raised.
        over: whether nobody needs it any more: then it is raised, too.

    Raises:
        StorageError: the storage does not answer; and whatever else `act` raises.
    """
    until = time.monotonic() + seconds
    pause = 0.25
    while True:
        try:
            return act()
        except StorageError as error:
            if over() or time.monotonic() + pause > until:
                raise
            log.warning("%s; tried again in %g s", error, pause)
        time.sleep(pause)
        pause = min(2 * pause, 8.0)


# ---- reading ---------------------------------------------------------------------------------------------------------


def from_anywhere(url: str) -> str:
    """Return a URL by which a process with another working directory finds the same folder; "": the same, none."""
    protocol, path = fsspec.core.split_protocol(url)
    if not path or path.startswith("/") or "::" in url or protocol not in _LOCAL:
        return url
    return str(Path(os.path.expanduser(path)).absolute())  # pathlib raises where it knows no such user


def local_folder(url: str) -> Path | None:
    """Return the path of a folder of this machine, or of one that it has mounted; None: the URL is of elsewhere."""
    system, path = fsspec.core.url_to_fs(url)
    return Path(path) if isinstance(system, LocalFileSystem) else None


def check_writable(url: str) -> None:
    """Make a folder of this machine, and write into it; one of elsewhere is left to those who write.

    Raises:
        OSError: it cannot be made or written.
    """
    if (folder := local_folder(url)) is not None:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def candidates(root: str) -> list[str]:
    """Return the URL of `root`, if it is a checkpoint, else of folders in it that may be one, highest version first.

    Raises:
        FileNotFoundError: there is no such folder.
        StorageError: the storage cannot be read.
    """
    root = root.rstrip("/")
    with asked(root):
        system, path = located(root)
        if _has_manifest(system, path):
            return [root]
        names = (str(entry).rstrip("/").rpartition("/")[2] for entry in system.ls(path, detail=False))
        return [f"{root}/{name}" for name in sorted(names, reverse=True) if name.startswith("version-")]


def is_complete(url: str) -> bool:
    """Return whether a folder has a manifest.

    Raises:
        StorageError: nobody can tell now.
    """
    with asked(url):
        return _has_manifest(*located(url))


def _has_manifest(system: Any, path: str) -> bool:
    """Return what `is_complete` does. fsspec's `exists` is not asked: most of them take any error for absence."""
    try:
        system.info(f"{path}/{MANIFEST}")
    except Exception as error:
        if _is_absence(error):
            return False
        raise
    return True


def read(url: str) -> bytes:
    """Return the whole of a file. Raises as `candidates`."""
    with asked(url):
        system, path = located(url)
        with system.open(path, "rb") as file:
            return bytes(file.read())


def size(url: str) -> int | None:
    """Return the bytes of a file; None: this storage does not tell. Raises as `candidates`."""
    with asked(url):
        system, path = located(url)
        found = system.info(path).get("size")
        return None if found is None else int(found)


# ---- writing ---------------------------------------------------------------------------------------------------------


def make_folder(url: str) -> None:
    """Make a folder and those above it, where they are not there yet.

    Raises:
        StorageError: it cannot be made.
    """
    with asked(url):
        system, path = located(url)
        made = []
        above = path.rstrip("/")
        while isinstance(system, LocalFileSystem) and above and not os.path.exists(above):
            made.append(above)
            above = os.path.dirname(above)
        system.makedirs(path, exist_ok=True)
        for folder in made:
            _sync_folder(os.path.dirname(folder) or ".")


@contextmanager
def writing(url: str) -> Iterator[BinaryIO]:
    """Write a file; where that fails what there is of it is removed.

    Raises:
        StorageError: it cannot be written, or is not sure to stay; or what `asked` makes of the caller's own error.
    """
    with asked(url):
        system, path = located(url)
        file = system.open(path, "wb")
        try:
            yield file
            if isinstance(system, LocalFileSystem):
                file.flush()
                os.fsync(file.fileno())
            file.close()
            if isinstance(system, LocalFileSystem):
                _sync_folder(os.path.dirname(path))
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                file.close()
            with suppress(Exception):
                system.rm_file(path)
            raise


def publish(url: str, data: bytes) -> None:
    """Write a file whole or not at all. Raises as `writing`."""
    with writing(f"{url}.part") as file:
        file.write(data)
    with asked(url):
        system, path = located(url)
        system.mv(f"{path}.part", path)
        if isinstance(system, LocalFileSystem):
            _sync_folder(os.path.dirname(path))


def remove(url: str) -> None:
    """Remove a checkpoint, if it is there, its manifest first: half of one is none. Raises as `writing`."""
    with suppress(FileNotFoundError), asked(url):
        system, path = located(url)
        with suppress(FileNotFoundError), asked(url):
            system.rm_file(f"{path}/{MANIFEST}")
        system.rm(path, recursive=True)


def take_back(url: str, name: str) -> None:
    """Remove a file from the folder of a checkpoint that did not become one, and the folder where it was the last.

    Where a manifest is all stays. What cannot be removed stays, with a warning.

    Args:
        url: of the folder; of each machine its own, or one that others, too, are clearing away.
        name: of the file.
    """
    try:
        with asked(url):
            system, path = located(url)
            if not _has_manifest(system, path):
                system.rm_file(f"{path}/{name}")
                if isinstance(system, LocalFileSystem):
                    with suppress(OSError):  # there are others' files
                        os.rmdir(path)
    except FileNotFoundError:
        pass
    except StorageError as error:
        log.warning("%s of %s stays: %s", name, url, error)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
