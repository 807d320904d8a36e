"""This module keeps two jobs that run at a time from saving under one identity into one folder.

Each would load, and delete, the other's checkpoints. A local folder, or one that machines share by a file system with
locks, has a lock for each identity that somebody has named; other storages have no locks. An identity that nobody has
named is random, and needs none.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system import storage
from elastic_ps.system.file_lock import try_lock
from elastic_ps.system.terminal import say


@contextmanager
def sole_saver(checkpoint: str, identity: str) -> Iterator[None]:
    """Hold the checkpoints of an identity in a folder meanwhile.

    Args:
        checkpoint: URL of the folder; "": there is none.
        identity: as it was named; "": it was not.

    Raises:
        ConfigurationError: another job that runs holds them.
    """
    folder = storage.local_folder(checkpoint) if checkpoint and identity else None
    if folder is None:
        yield
        return
    file = folder / f".{identity}.lock"
    try:
        lock = try_lock(file)
    except OSError as error:
        say(f"elasticrun: {file} cannot be locked ({error}): see that no other job saves as {identity} there", err=True)
        yield
        return
    if lock is None:
        raise ConfigurationError(_refusal(file, identity))
    try:
        with suppress(OSError):  # a full disk: whoever is refused is told of another process then
            os.truncate(lock, 0)
            os.write(lock, f"process {os.getpid()} of {socket.gethostname()}\n".encode())
        yield
    finally:
        os.close(lock)


def _refusal(file: Path, identity: str) -> str:
    holder = file.read_text(errors="replace").strip() or "another process"
    return (
        f"--identity {identity}: a job that runs saves under this identity in {file.parent} ({holder}), and each would "
        "load and delete the other's checkpoints. End it first, or give another --identity or --checkpoint"
    )
