"""The ledger and the step times of a job: JSON lines in its folder, appended.

Servers keep ledger entries until the coordinator says that they are stored, so an entry is on the disk before it is
acknowledged, and one that comes twice (the acknowledgement was lost) is stored once.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coordinator.journal import Unwritten
from coordinator.state import Void
from protos import elastic_pb2 as pb


class Book:
    """One file of JSON lines. A line torn by a crash is dropped: it had not been acknowledged."""

    def __init__(self, path: Path):
        self._path = path
        if path.exists():
            _mend(path)
        self._file = path.open("a", encoding="utf-8")

    def append(self, lines: Sequence[Any], sync: bool) -> None:
        """Write lines; `sync`: they survive a power cut when this returns.

        Raises:
            Unwritten: some of them may be written, the last in part: only a new `Book` can go on.
        """
        try:
            self._file.write("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise Unwritten(self._path, error.strerror) from error

    def __iter__(self) -> Iterator[Any]:
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):  # else it is being written
                    yield json.loads(line)

    def close(self) -> None:
        """Let go of the file."""
        with suppress(OSError):  # what could not be written was told already
            self._file.close()


def _mend(path: Path) -> None:
    """Cut off a last line without its end."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        while size:
            start = max(0, size - 65536)
            file.seek(start)
            cut = file.read(size - start).rfind(b"\n")
            if cut >= 0:
                file.truncate(start + cut + 1)
                return
            size = start
        file.truncate(0)


class Ledger:
    """What servers have applied.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path):
        self._book = Book(path)
        self._kept: dict[str, int] = {}
        for line in self._book:
            self._kept[line["server"]] = line["sequence"] + 1

    def store(self, server: str, first: int, entries: Sequence["pb.LedgerEntry"]) -> int:
        """Store entries `first`, `first` + 1, ...; returns up to where all are kept."""
        kept = self._kept.get(server, 0)
        if first > kept and server in self._kept:
            return kept  # there would be a gap: the server sends again from there
        new = entries[max(0, kept - first) :]
        start = max(first, kept)
        if new:
            self._book.append([_line(server, start + n, entry) for n, entry in enumerate(new)], sync=True)
            self._kept[server] = start + len(new)
        return self._kept.get(server, first)

    def entries(self, voids: Sequence[Void]) -> Iterator["pb.LedgerEntry"]:
        """Every entry; those that a restore took back are marked."""
        for line in self._book:
            entry = pb.LedgerEntry(
                server=line["server"],
                term=line["term"],
                number=line["number"],
                version=line["version"],
                runs=line["runs"],
                epoch=line["epoch"],
                step=line["step"],
                exchange=line["exchange"],
                slices=[pb.Slice(worker=worker, low=low, high=high) for worker, low, high in line["slices"]],
            )
            entry.voided = any(void.takes_back(entry.term, entry.version, entry.epoch, entry.step) for void in voids)
            yield entry

    def close(self) -> None:
        """Let go of the file."""
        self._book.close()


def _line(server: str, sequence: int, entry: "pb.LedgerEntry") -> dict[str, Any]:
    return {
        "server": server,
        "sequence": sequence,
        "term": entry.term,
        "number": entry.number,
        "version": entry.version,
        "runs": list(entry.runs),
        "epoch": entry.epoch,
        "step": entry.step,
        "exchange": entry.exchange,
        "slices": [[part.worker, part.low, part.high] for part in entry.slices],
    }


class Steps:
    """Times of every step at every worker; a report that comes twice is stored once.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path):
        self._book = Book(path)
        self._last: dict[str, float] = {}
        for line in self._book:
            self._last[line["worker"]] = line["end"]

    def store(self, worker: str, steps: Sequence["pb.StepTime"]) -> None:
        """Append those that are new."""
        last = self._last.get(worker, 0.0)
        new = [step for step in steps if step.end > last]
        if new:
            self._last[worker] = new[-1].end
            rows = [
                {"worker": worker, "version": s.version, "end": s.end, "seconds": s.seconds, "samples": s.samples}
                for s in new
            ]
            self._book.append(rows, sync=False)

    def rows(self) -> Iterator["pb.StepRow"]:
        """Every one, in the order of arrival."""
        for line in self._book:
            worker = line.pop("worker")
            yield pb.StepRow(worker=worker, step=pb.StepTime(**line))

    def close(self) -> None:
        """Let go of the file."""
        self._book.close()
