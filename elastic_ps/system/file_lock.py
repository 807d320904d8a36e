"""This module locks files: one process at a time holds a lock, and the kernel lets go of it with the process."""

import fcntl
import os
from pathlib import Path


def try_lock(file: Path) -> int | None:
    """Return a descriptor that holds a file's lock until it is closed; None: another one holds it.

    Processes that this one starts do not inherit it. The file is made where there is none, and stays.

    Raises:
        OSError: the file cannot be made, or its file system has no locks.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
