"""This module reads files given by path so that none can make a program wait or fill its memory."""

import errno
import os
import stat
from pathlib import Path

MIB = 1 << 20
MOST_BYTES = 64 * MIB
"""The most bytes of a file, where its reader names no other bound."""


class UnreadableFile(OSError):
    """The path is no file of data, or one that is too large; the text says which, and how to mend it."""

    def __init__(self, number: int, reason: str, path: str):
        super().__init__(number, reason, path)

    def __str__(self) -> str:
        return str(self.strerror)


def read_bytes(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """Return what a file holds.

    Args:
        path: of a regular file, or a link to one.
        most: bytes that it may have.

    Raises:
        UnreadableFile: it is a device, a pipe, a socket or a folder, or has more bytes than `most`.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe waits for its writer
    except ValueError as error:  # \0 in the path
        raise UnreadableFile(errno.EINVAL, f"no path ({error}): give the path of a file", repr(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFile(errno.EINVAL, "not a file of data: give the path of one", str(path))
    with os.fdopen(descriptor, "rb") as file:
        found = file.read(most + 1)  # what a file in /proc holds is longer than its size says
    if len(found) > most:
        raise UnreadableFile(errno.EFBIG, f"longer than {size_text(most)}: give a smaller file", str(path))
    return found


def read_text(path: str | Path, most: int = MOST_BYTES) -> str:
    """Return what a file of UTF-8 holds, its line ends as \\n.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        OSError: as `read_bytes`.
    """
    return read_bytes(path, most).decode().replace("\r\n", "\n").replace("\r", "\n")


def size_text(count: int) -> str:
    """Return a limit in words: 64 MiB."""
    return f"{count // MIB} MiB" if count >= MIB else f"{count} bytes"
