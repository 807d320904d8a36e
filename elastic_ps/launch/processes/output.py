"""This module says where the output of a job's processes goes: one file for each node, and one stream for people."""

import os
import select
import threading
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, TextIO

from elastic_ps.system.printable import one_line

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""ANSI foregrounds without red, which means errors, and without the grays."""


ROOM = 1 << 20
"""Most characters of lines that wait for their reader; what comes beyond is in the logs only."""

MOST_BYTES = 1 << 30
"""Of a log: then it is put aside as NAME.log.1, in the place of the one before, and another one begins."""

_PIECE = 1 << 16
_SAID = 300  # characters of a process's last line that are told of its death


class MergedStream:
    """A `MergedStream` shows lines of all processes on one stream, each behind its label.

    Whoever reads them may be slow, or stand still (Ctrl-S, `less`), and stops nothing: a thread writes, and lines that
    find no room are counted and left out.

    Args:
        stream: usually standard output.
        colour: paint labels; None: where `stream` is a terminal and NO_COLOR is not set.
    """

    def __init__(self, stream: TextIO, colour: bool | None = None):
        self._write = _writer(stream)
        self._colour = colour if colour is not None else stream.isatty() and not os.environ.get("NO_COLOR")
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()
        self._size = 0  # of what waits
        self._left_out = 0
        self._writing = self._gone = False
        self._thread: threading.Thread | None = None

    def line(self, label: str, text: str) -> None:
        """Write one line, soon. It never waits."""
        shown = f"{self._label(label)} {text}\n"
        with self._changed:
            if self._gone:
                return
            if self._size + len(shown) > ROOM:
                self._left_out += 1
                return
            self._put(shown)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="merged-output", daemon=True)
                self._thread.start()

    def flush(self, patience: float) -> None:
        """Wait until all lines are written, `patience` seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._gone or not (self._waiting or self._writing), patience)

    def _label(self, label: str) -> str:
        if not self._colour:
            return f"[{label}]"
        return f"\x1b[{_COLOURS[zlib.crc32(label.encode()) % len(_COLOURS)]}m[{label}]\x1b[0m"

    def _put(self, shown: str) -> None:
        self._waiting.append(shown)
        self._size += len(shown)
        self._changed.notify_all()

    def _take(self) -> str:
        """Wait for lines, and take some."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting)
            piece = ""
            while self._waiting and len(piece) < _PIECE:
                piece += self._waiting.popleft()
            self._size -= len(piece)
            if self._left_out and not self._waiting:
                many = "1 line is" if self._left_out == 1 else f"{self._left_out} lines are"
                self._left_out = 0
                self._put(f"{self._label('elasticrun')} {many} left out here, as nobody read them; the logs have all\n")
            self._writing = True
            return piece

    def _run(self) -> None:
        try:
            while True:
                self._write(self._take())
        except OSError:  # the reader has gone (`elasticrun ... | head`); the files still take every line
            with self._changed:
                self._gone, self._waiting = True, deque()
                self._changed.notify_all()


def _writer(stream: TextIO) -> Callable[[str], None]:
    """Return what writes a text to a stream.

    To a descriptor where it has one: a thread that stands in it holds no lock of the stream's, which Python would wait
    for when it ends.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return lambda text: (stream.write(text), stream.flush())[1]

    return lambda text: _write_all(descriptor, text.encode(errors="replace"))


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # another process that has it too has made it so
            select.select((), (descriptor,), ())


def pass_on(pipe: BufferedReader, descriptor: int) -> None:
    """Write what comes through a pipe to a descriptor, as it comes, until the pipe's end.

    Who reads that may have gone (`| tee` that Ctrl-C has ended, a terminal that is closed): whoever writes into the
    pipe need not know.
    """
    with pipe:
        while piece := pipe.read1(_PIECE):
            with suppress(OSError):
                _write_all(descriptor, piece)


class NodeLog:
    """A `NodeLog` is the log file of one process, whose lines go to the merged stream too.

    A disk that fails, or on which somebody has removed the logs, must not end a job: that a file cannot be made,
    renamed or written is said once each on the merged stream, which has the process's output all the same.

    Args:
        folder: of the job's logs.
        name: of the file and the label, until the node's id is known.
        merged: where each line goes too.

    Attributes:
        path: of the file.
        label: of its lines on the merged stream.
        last: the last line that was not empty, cut: of a script that has raised, what it raised.
    """

    def __init__(self, folder: Path, name: str, merged: MergedStream):
        self.path = folder / f"{name}.log"
        self.label = name
        self.last = ""
        self._merged = merged
        self._complained: set[str] = set()
        self._file: BinaryIO | None = None
        self._size = 0
        try:
            self._file = self.path.open("ab", buffering=0)
            self._size = self._file.tell()
        except OSError as error:
            self._complain("make", error)

    def rename(self, node: str) -> None:
        """Use the node's id from now on, for the whole file."""
        target = self.path.with_name(f"{node}.log")
        self.label = node
        if self._file is not None:
            try:
                self.path.rename(target)
            except OSError as error:
                self._complain("rename", error)
            else:
                self.path = target

    def line(self, line: bytes) -> None:
        """Take one line of output, or a piece of a very long one."""
        if self._file is not None:
            if self._size + len(line) > MOST_BYTES:
                self._begin_anew(self._file)
            try:
                self._file.write(line)
                self._size += len(line)
            except OSError as error:
                self._complain("write", error)
        # Of a progress bar what a terminal would show in the end: its returns would write over the label.
        shown = line.decode(errors="replace").rstrip("\r\n").rpartition("\r")[2]
        self.last = one_line(shown.strip()[:_SAID]) or self.last
        self._merged.line(self.label, shown)

    def _begin_anew(self, full: BinaryIO) -> None:
        """Put the file aside and begin another one; where that fails it grows on, by as much again."""
        self._size = 0
        try:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            self._complain("begin anew", error)
        else:
            full.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _complain(self, what: str, error: OSError) -> None:
        if what not in self._complained:  # that it has no name must not hide that it has no lines
            self._complained.add(what)
            self._merged.line(self.label, f"elasticrun: cannot {what} {self.path}: {error.strerror}")
