"""Where the output of a job's processes goes: one file per node, and one labelled stream for people."""

import os
import threading
import zlib
from pathlib import Path
from typing import BinaryIO, TextIO

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""ANSI foregrounds without red, which means errors, and without the grays."""


class MergedStream:
    """Lines of all processes on one stream, each behind its label.

    Args:
        stream: usually standard output.
        colour: paint labels; None: where `stream` is a terminal and NO_COLOR is not set.
    """

    def __init__(self, stream: TextIO, colour: bool | None = None):
        self._stream: TextIO | None = stream
        self._colour = colour if colour is not None else stream.isatty() and not os.environ.get("NO_COLOR")
        self._lock = threading.Lock()

    def line(self, label: str, text: str) -> None:
        """Write one line."""
        shown = f"[{label}]"
        if self._colour:
            shown = f"\x1b[{_COLOURS[zlib.crc32(label.encode()) % len(_COLOURS)]}m{shown}\x1b[0m"
        with self._lock:
            if self._stream is None:
                return
            try:
                self._stream.write(f"{shown} {text}\n")
                self._stream.flush()
            except OSError:  # the reader has gone (`elasticrun ... | head`); the files still take every line
                self._stream = None


class NodeLog:
    """The log file of one process and its lines in the merged stream.

    Args:
        folder: of the job's logs.
        name: of the file and the label, until the node's id is known.
        merged: where each line goes too.
    """

    def __init__(self, folder: Path, name: str, merged: MergedStream):
        self.path = folder / f"{name}.log"
        self.label = name
        self._merged = merged
        self._file: BinaryIO = self.path.open("ab", buffering=0)
        self._complained = False

    def rename(self, node: str) -> None:
        """Use the node's id from now on, for the whole file."""
        target = self.path.with_name(f"{node}.log")
        self.path.rename(target)
        self.path, self.label = target, node

    def line(self, line: bytes) -> None:
        """Take one line of output, or a piece of a very long one."""
        try:
            self._file.write(line)
        except OSError as error:  # a full disk must not end a job: its output is still on the merged stream
            if not self._complained:
                self._complained = True
                self._merged.line(self.label, f"elasticrun: cannot write {self.path}: {error.strerror}")
        self._merged.line(self.label, line.decode(errors="replace").rstrip("\r\n"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
