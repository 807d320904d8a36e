"""Last entries are those of the ledger that followers tell in the names of the blocks' owners when a job ends.

A server may have died just before the end, and nobody have noticed. So every server tells at its end what the owners
whose blocks it follows had written down. Most of these tell it themselves, so it is kept apart until all have ended.
"""

from collections.abc import Mapping

from elastic_ps.core.model import Run
from elastic_ps.core.segments import mask_of, runs_of
from protos import elastic_pb2 as pb


class LastEntries:
    """`LastEntries` holds what is told in the names of servers that may tell it themselves."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], pb.LedgerEntry] = {}

    def put(self, entry: "pb.LedgerEntry") -> None:
        """Take an entry, or of one that is known the blocks of which nobody has told yet."""
        known = self._entries.setdefault((entry.server, entry.sequence), entry)
        blocks = mask_of([*_runs(known), *_runs(entry)])
        known.runs[:] = [number for run in runs_of(blocks) for number in run]

    def untold(self, kept: Mapping[str, int]) -> "list[pb.LedgerEntry]":
        """Return, in order, what servers had not told themselves.

        Args:
            kept: by server, up to where its own entries are kept.
        """
        return [entry for (server, sequence), entry in sorted(self._entries.items()) if sequence >= kept.get(server, 0)]


def _runs(entry: "pb.LedgerEntry") -> list[Run]:
    return list(zip(entry.runs[::2], entry.runs[1::2], strict=True))
