"""This module lets one process at a time do something."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dl2_scheduler.cluster.errors import ClusterRefused
from elastic_ps.system.file_lock import try_lock


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
    lock = try_lock(file)
    if lock is None:
        raise ClusterRefused(refusal)
    try:
        yield
    finally:
        os.close(lock)
