"""This module lets one process at a time do something."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dl2_scheduler.cluster.errors import ClusterRefused


@contextmanager
def alone(file: Path, refusal: str) -> Iterator[None]:
    """Keep a file's lock as long as the context lasts; the kernel lets go of it with this process.

    Args:
        file: is made where there is none.
        refusal: for people: what to do where another has it.

    Raises:
        ClusterRefused: another has it.
        OSError: the file cannot be used.
    """
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterRefused(refusal) from None
        yield
    finally:
        os.close(lock)
