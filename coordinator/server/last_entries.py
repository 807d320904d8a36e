"""Last entries are those of the ledger that followers tell in the names of the blocks' owners when a job ends.

A server may have died just before the end, and nobody have noticed. So every server tells at its end what the owners
whose blocks it follows had written down. Most of these tell it themselves, so it is kept apart, and counts as long as
they do not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from elastic_ps.control.codec import runs_from_pb, runs_to_pb
from elastic_ps.core.model import Run
from elastic_ps.core.segments import joined, mask_of, runs_of
from protos import elastic_pb2 as pb


class LastEntries:
    """`LastEntries` holds what is told in the names of servers that may tell it themselves."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], pb.LedgerEntry] = {}
        self._counted: dict[tuple[str, int], list[Run]] = defaultdict(list)

    def put(self, entry: "pb.LedgerEntry") -> None:
        """Take an entry, or of one that is known the blocks of which nobody has told yet."""
        known = self._entries.setdefault((entry.server, entry.sequence), entry)
        _set(known, [*runs_from_pb(known.runs), *runs_from_pb(entry.runs)])

    def count(self, entry: "pb.LedgerEntry") -> None:
        """Take note of an entry that counts already: who goes on with a dead server's blocks had told it before."""
        self._counted[entry.server, entry.sequence] += runs_from_pb(entry.runs)

    @property
    def counted(self) -> list[tuple[str, list[int], list[int]]]:
        """Server, runs of numbers and runs of blocks of the entries that count already; most are alike."""
        alike: dict[tuple[str, tuple[Run, ...]], list[Run]] = defaultdict(list)
        for (server, sequence), runs in self._counted.items():
            alike[server, tuple(runs)].append((sequence, 1))
        return [(server, runs_to_pb(joined(numbers)), runs_to_pb(runs)) for (server, runs), numbers in alike.items()]

    def recall(self, counted: Iterable[tuple[str, list[int], list[int]]]) -> None:
        """Take note again of entries that count already, as `counted` told."""
        for server, numbers, runs in counted:
            for first, count in runs_from_pb(numbers):
                for sequence in range(first, first + count):
                    self._counted[server, sequence] += runs_from_pb(runs)

    def untold(self, kept: Mapping[str, int]) -> "list[pb.LedgerEntry]":
        """Return, in order, what servers had not told themselves, of the blocks for which it does not count yet.

        Args:
            kept: by server, up to where its own entries are kept.
        """
        left = sorted(key for key in self._entries if key[1] >= kept.get(key[0], 0))
        return [entry for key in left if (entry := self._uncounted(key)).runs]

    def _uncounted(self, key: tuple[str, int]) -> "pb.LedgerEntry":
        entry = self._entries[key]
        _set(entry, runs_from_pb(entry.runs), self._counted.get(key, ()))
        return entry


def _set(entry: "pb.LedgerEntry", blocks: Iterable[Run], but: Iterable[Run] = ()) -> None:
    mask = mask_of(blocks)
    for first, count in but:
        mask[first : first + count] = False
    entry.runs[:] = runs_to_pb(runs_of(mask))
