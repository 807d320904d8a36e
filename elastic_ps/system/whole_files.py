"""This module writes files whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, data: bytes | memoryview, partial: Path) -> None:
    """Write a file whole or not at all, also where the machine loses power meanwhile.

    Args:
        path: of the file, which is made or replaced.
        data: what it holds.
        partial: beside it, where it is written first.

    Raises:
        OSError: it cannot be written; it names the file.
    """
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else the name may be on the disk before the bytes are
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
