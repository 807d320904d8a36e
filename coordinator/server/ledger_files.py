"""The ledger and the step times of a job are JSON lines in its folder, which only grow.

Servers keep ledger entries until the coordinator says that they are stored, so an entry is on the disk before it is
acknowledged, and one that comes twice (the acknowledgement was lost) is stored once. Nothing that a disk has lost of
them keeps a coordinator from starting (`json_lines`).
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coordinator.core.checkpoints.ledger_voids import BlockRun, Void, without
from coordinator.server.json_lines import JsonLinesFile
from coordinator.server.last_entries import LastEntries
from elastic_ps.control.codec import runs_from_pb, runs_to_pb
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

MARK_BYTES = 4 << 20
"""After so many bytes the ledger says how far it holds each server's entries: the next start reads it from there."""

_MOST_TOLD = 50_000
"""Numbers by which a mark repeats what was told in others' names: with more it would be too long a line."""

_SEARCHED = 16 * MARK_BYTES
_MARK = b'{"kept":'
_HEAD = re.compile(rb'\{"server":"([^"\\]+)","sequence":(\d+),[^\0{}]*\}\n')  # two that have run together are none

_OF_ANOTHER = b'"at":'  # in the lines of entries that one server has told in another's name


class Ledger:
    """A ledger holds what servers have applied.

    Its entries can be read at once, but for the last ones that servers have told in others' names; before it takes any,
    `load` finds out how far it holds each server's, and those.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path):
        self._book = JsonLinesFile(path)
        self._kept: dict[str, int] = {}
        self._last = LastEntries()
        self._unmarked = 0  # bytes since the last mark
        self._given_up = False
        self.loaded = False

    def load(self) -> None:
        """Read how far the entries of each server are kept, from the last mark on. Any thread may, once.

        Raises:
            OSError: the file cannot be read.
        """
        start = 0
        if (found := self._book.last(_MARK, _SEARCHED)) is not None and (kept := _marked(found[1])) is not None:
            start, self._kept = found[0], kept
            self._last.recall(found[1].get("told", ()))
            marked = found[1].get("counted", ())  # of an earlier program, which repeated each number by itself
            self._last.recall((server, [number, 1], runs) for server, number, runs in marked)
        damaged = 0
        for line in self._book.lines(start):
            if match := _HEAD.fullmatch(line):
                self._kept[match[1].decode()] = int(match[2]) + 1
                damaged += _OF_ANOTHER in line and not self._recall(line)
            elif not line.startswith(_MARK):
                damaged += 1
            if self._given_up:
                return
        self._book.tell(damaged)
        self._unmarked = self._book.size - start
        self.loaded = True

    def _recall(self, line: bytes) -> bool:
        """Take in again what a server had told in another's name; return whether it can be read."""
        try:
            row = json.loads(line)
            if (entry := _entry(row)) is not None:
                entry.sequence = row["at"]
                entry.runs.extend(row.get("last", ()))
                (self._last.put if "last" in row else self._last.count)(entry)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        return True

    def give_up(self) -> None:
        """End a `load` that is under way at once: the coordinator ends."""
        self._given_up = True

    def store(self, server: str, first: int, entries: Sequence["pb.LedgerEntry"], ended: bool = False) -> int:
        """Store entries of a server; return up to where all of its entries are kept, 0 before the ledger is loaded.

        A server sends what has not been acknowledged, from its oldest on: where `first` is beyond what is kept here,
        the disk has lost what lies between, and nobody has it any more. What it tells in the name of a dead server
        counts unless that one had told it; several servers may tell parts of one such entry. Once the job has ended,
        what is told in another's name counts as long as that one does not tell it.

        Args:
            server: that has applied them.
            first: number of the first of them.
            entries: in order, without a gap.
            ended: the job has.
        """
        if not self.loaded:
            return 0
        kept = self._kept.get(server, first)
        if first > kept:
            log.warning("the ledger has lost entries %d to %d of %s: an audit will miss them", kept, first - 1, server)
            kept = first
        new = entries[kept - first :]
        if new:
            lines = []
            for number, entry in enumerate(new, kept):
                others = entry.server not in ("", server)
                known = others and entry.sequence < self._kept.get(entry.server, 0)
                last = others and ended and not known
                lines.append(_line(server, number, entry, known, last))
                if last:
                    self._last.put(entry)
                elif others and not known:
                    self._last.count(entry)
            kept += len(new)
            self._write(lines, {**self._kept, server: kept})
        return kept

    def _write(self, lines: list[dict[str, Any]], kept: dict[str, int]) -> None:
        """Write lines, and now and then a mark, but none that would hide what is kept apart from the next `load`."""
        if self._unmarked >= MARK_BYTES and not self._last.untold(kept):
            told = self._last.counted
            if sum(len(numbers) + len(runs) for _, numbers, runs in told) <= _MOST_TOLD:
                lines.append({"kept": kept} | ({"told": told} if told else {}))
            self._unmarked = 0
        self._unmarked += self._book.append(lines, sync=True)
        self._kept = kept

    def entries(self, voids: Sequence[Void]) -> Iterator["pb.LedgerEntry"]:
        """Yield every entry; those that a restore took back are marked. One that counts for some blocks comes twice."""
        for entry in self._rows():
            runs = runs_from_pb(entry.runs)
            kept: Sequence[BlockRun] = runs
            for void in voids:
                kept = void.kept(entry.term, entry.version, kept)
            for part, voided in ((kept, False), (without(runs, kept), True)):
                if part:
                    yield _of_blocks(entry, part, voided)

    def _rows(self) -> Iterator["pb.LedgerEntry"]:
        yield from self._book.rows(_entry)
        if self.loaded:  # else another thread is at it
            yield from self._last.untold(self._kept)

    def settle(self) -> None:
        """Give servers what was told in their names at the end of a job that begins again: none of them is left.

        Raises:
            JobFolderUnwritable: it stays apart.
        """
        if last := self._last.untold(self._kept):
            kept = {**self._kept, **{entry.server: entry.sequence + 1 for entry in last}}
            self._write([_line(entry.server, entry.sequence, entry) for entry in last], kept)

    def close(self) -> None:
        """Let go of the file."""
        self._book.close()


def _of_blocks(entry: "pb.LedgerEntry", runs: Sequence[BlockRun], voided: bool) -> "pb.LedgerEntry":
    """Return an entry as it is for some of its blocks."""
    part = pb.LedgerEntry()
    part.CopyFrom(entry)
    part.runs[:] = runs_to_pb(runs)
    part.voided = voided
    return part


def _marked(line: Any) -> dict[str, int] | None:
    """Return what a mark says; None: it is none."""
    kept = line.get("kept") if isinstance(line, dict) else None
    whole = isinstance(kept, dict) and all(isinstance(number, int) for number in kept.values())
    return kept if whole else None


def _line(
    server: str, sequence: int, entry: "pb.LedgerEntry", known: bool = False, last: bool = False
) -> dict[str, Any]:
    """Return an entry as it is written; `_HEAD` reads its first two fields.

    One that is known counts for no block, nor does one of the last that its owner may tell itself.
    """
    line = {
        "server": server,
        "sequence": sequence,
        "term": entry.term,
        "number": entry.number,
        "version": entry.version,
        "runs": [] if known or last else list(entry.runs),
        "epoch": entry.epoch,
        "step": entry.step,
        "exchange": entry.exchange,
        "slices": [[part.worker, part.low, part.high] for part in entry.slices],
    }
    if entry.server not in ("", server):
        line |= {"of": entry.server, "at": entry.sequence}
    return line | ({"last": list(entry.runs)} if last else {})


def _entry(line: Any) -> "pb.LedgerEntry | None":
    if _marked(line) is not None:
        return None
    if len(line["runs"]) % 2:
        raise ValueError("half a pair")
    return pb.LedgerEntry(
        server=line.get("of", line["server"]),
        term=line["term"],
        number=line["number"],
        version=line["version"],
        runs=line["runs"],
        epoch=line["epoch"],
        step=line["step"],
        exchange=line["exchange"],
        slices=[pb.Slice(worker=worker, low=low, high=high) for worker, low, high in line["slices"]],
    )


class Steps:
    """Steps hold the time of every step at every worker; a report that comes twice is stored once.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path):
        self._book = JsonLinesFile(path)
        self._last: dict[str, float] = {}
        for row in self._book.rows(_step, self._book.tail(MARK_BYTES)):  # only a worker's last report can come again
            self._last[row.worker] = row.step.end

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
        """Yield every one, in the order of arrival."""
        return self._book.rows(_step)

    def close(self) -> None:
        """Let go of the file."""
        self._book.close()


def _step(line: Any) -> "pb.StepRow":
    names = ("version", "end", "seconds", "samples")
    return pb.StepRow(worker=line["worker"], step=pb.StepTime(**{name: line[name] for name in names}))
