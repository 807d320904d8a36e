"""A file of JSON lines only grows, and can be read while it does.

A disk may lose what had not been synced, or more: an end without its newline is cut off, a line that is none is passed
over, and both are told in the log.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from coordinator.server.journal import JobFolderUnwritable

log = logging.getLogger(__name__)

_BLOCK = 1 << 20
_LONGEST_LINE = 1 << 20

_WRITER = json.JSONEncoder(separators=(",", ":"))  # `json.dumps` makes such an object anew for each line

_Row = TypeVar("_Row")


class JsonLinesFile:
    """A file of JSON lines is appended to, and read while it grows.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path):
        self._path = path
        if path.exists():
            _mend(path)
        self._file = path.open("a", encoding="utf-8")
        self._failed: JobFolderUnwritable | None = None

    @property
    def size(self) -> int:
        """The bytes that it has."""
        return self._path.stat().st_size

    def append(self, lines: Sequence[Any], sync: bool) -> int:
        """Write lines and return how many bytes they are; `sync`: they survive a power cut when this returns.

        Raises:
            JobFolderUnwritable: some of them may be written, the last in part. Only a new `JsonLinesFile` can go on:
                this one takes no line any more, which would stand behind that part.
        """
        if self._failed is not None:
            raise self._failed
        text = "".join([_WRITER.encode(line) + "\n" for line in lines])
        try:
            self._file.write(text)
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            self._failed = JobFolderUnwritable(self._path, error.strerror)
            raise self._failed from error
        return len(text)

    def lines(self, start: int = 0) -> Iterator[bytes]:
        """Yield every whole line from byte `start` on, which begins one; one that cannot be a line comes in pieces."""
        with self._path.open("rb") as file:
            file.seek(start)
            while line := file.readline(_LONGEST_LINE):
                if line.endswith(b"\n") or len(line) == _LONGEST_LINE:  # else it is being written
                    yield line

    def rows(self, decode: Callable[[Any], _Row | None], start: int = 0) -> Iterator[_Row]:
        """Yield what `decode` makes of each line from byte `start` on; None is left out, and what it cannot take."""
        damaged = 0
        for line in self.lines(start):
            try:
                row = decode(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                damaged += 1
                continue
            if row is not None:
                yield row
        self.tell(damaged)

    def tell(self, damaged: int) -> None:
        """Say in the log how many lines were passed over."""
        if damaged:
            log.warning("%s is damaged: %d lines of it cannot be read and do not count", self._path, damaged)

    def tail(self, size: int) -> int:
        """Return where the first line begins that lies wholly within the last `size` bytes."""
        with self._path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            if end <= size:
                return 0
            file.seek(end - size)
            file.readline(_LONGEST_LINE)
            return file.tell()

    def last(self, head: bytes, within: int) -> tuple[int, Any] | None:
        """Find the last line that begins with `head`, in the last `within` bytes; return where it begins, and it."""
        sought = b"\n" + head
        with self._path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            low, position = max(0, end - within), end
            while position > low:
                position = max(low, position - _BLOCK)
                file.seek(position)
                block = file.read(_BLOCK + len(sought))
                found = len(block)
                while (found := block.rfind(sought, 0, found)) >= 0:
                    file.seek(position + found + 1)
                    with suppress(ValueError):
                        return position + found + 1, json.loads(file.readline(_LONGEST_LINE))
        return None

    def close(self) -> None:
        """Let go of the file."""
        with suppress(OSError):  # what could not be written was told already
            self._file.close()


def _mend(path: Path) -> None:
    """Cut off an end that is no whole line: it had not been acknowledged."""
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _BLOCK)
            file.seek(start)
            cut = file.read(end - start).rfind(b"\n")
            end = start if cut < 0 else start + cut + 1
            if cut >= 0:
                break
        if end < size:
            file.truncate(end)
            log.warning("%s ended within a line: its last %d bytes were cut off", path, size - end)
