"""A `ServerLedger` keeps what a server has applied until the coordinator has it on disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

import numpy as np
from numpy.typing import NDArray

from elastic_ps.control.codec import runs_from_pb, runs_to_pb
from elastic_ps.core.configuration import ConfigId, NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.segments import grown, has_any, joined
from elastic_ps.server.state.gathering import Share
from protos import elastic_pb2 as pb

REPORT_ENTRIES, _REPORT_BYTES = 2000, 8 << 20
"""Most entries of one report, and about how many bytes they have: a message of gRPC has its bound."""


@dataclass
class WithheldEntry:
    """A `WithheldEntry` of the ledger waits until followers have the updates that it tells of.

    Attributes:
        version: the version that the blocks had before.
        blocks: by block, whether its follower lacks the update yet.
    """

    version: int
    blocks: NDArray[np.bool_]


class ServerLedger:
    """A `ServerLedger` numbers its entries in sequence. Not thread-safe: `ServerState.changed` guards it.

    Args:
        server: the server whose ledger it is.
    """

    def __init__(self, server: NodeId):
        self._server = server
        self._entries: list[pb.LedgerEntry] = []
        self._first = 0  # sequence number of the first entry kept
        self._handed_out = 0  # entries below this number have been in a report and must stay as they are
        self._withheld: dict[int, WithheldEntry] = {}  # by number of the entry
        self._adopted = 0  # entries of dead servers are below this number
        self._awaited: list[tuple[int, Callable[[], None]]] = []  # what waits until the entries below are kept

    def append(
        self, number: ConfigId, version: int, applied: Sequence[Run], shares: Sequence[tuple[NodeId, Share]]
    ) -> int:
        """Write down an update of some blocks; return the number of its entry.

        The chunks of one step become one entry, until it is reported.

        Args:
            number: id of the configuration in force.
            version: the version that the blocks had before.
            applied: runs of the blocks.
            shares: the workers' shares, in rank order.
        """
        entry = pb.LedgerEntry(server=self._server, term=number.term, number=number.number, version=version)
        for worker, share in shares:
            if (part := share.slice) is not None:
                entry.epoch, entry.step, entry.exchange = part.epoch, part.step, part.exchange
                if part.high > part.low:
                    entry.slices.append(pb.Slice(worker=worker, low=part.low, high=part.high))
        merged = list(applied)
        if self._entries and self._first + len(self._entries) > self._handed_out:
            last = self._entries[-1]
            known = runs_from_pb(last.runs)
            del last.runs[:]
            if last == entry:
                self._entries.pop()
                merged = joined([*known, *merged])
            else:
                last.runs.extend(runs_to_pb(known))
        entry.runs.extend(runs_to_pb(merged))
        self._entries.append(entry)
        return self._first + len(self._entries) - 1

    def adopt(self, entry: pb.LedgerEntry) -> None:
        """Tell an entry of another server: this one goes on with its blocks, or it may be dead at the end."""
        self._entries.append(entry)
        self._adopted = self._first + len(self._entries)
        self._handed_out = max(self._handed_out, self._adopted)  # nothing is added to it

    def withhold(self, sequence: int, version: int, updated: Sequence[Run], blocks: int) -> None:
        """Report no entry from this one on before followers have the update that it tells of.

        Args:
            sequence: number of the entry.
            version: the version that the blocks had before.
            updated: runs of the blocks.
            blocks: that the job has.
        """
        if sequence not in self._withheld:
            self._withheld[sequence] = WithheldEntry(version, np.zeros(blocks, dtype=bool))
        entry = self._withheld[sequence]
        entry.blocks = grown(entry.blocks, blocks)  # a chunk may come when the model has grown
        for first, count in updated:
            entry.blocks[first : first + count] = True

    def tell(self, told: NDArray[np.int64]) -> bool:
        """Report the entries of updates that followers have from now on; return whether there are any.

        Args:
            told: by block, the version that its follower has.
        """
        before = len(self._withheld)
        for sequence, entry in list(self._withheld.items()):
            entry.blocks &= told[: len(entry.blocks)] <= entry.version
            if not has_any(entry.blocks):
                del self._withheld[sequence]
        return len(self._withheld) < before

    def wait_no_more(self, blocks: NDArray[np.int64]) -> None:
        """Wait for no follower of some blocks: nobody has seen their last updates, which are made again."""
        for entry in self._withheld.values():
            entry.blocks[blocks[blocks < len(entry.blocks)]] = False

    def tell_all(self) -> None:
        """Report all entries from now on: nobody goes on with what followers have."""
        self._withheld.clear()

    def unkept(self, first: int = 0) -> list[tuple[int, pb.LedgerEntry]]:
        """Return the entries from number `first` on that the coordinator does not have, by number."""
        first = max(first, self._first)
        return list(enumerate(self._entries[first - self._first :], first))

    @property
    def first(self) -> int:
        """The number of the first entry that the coordinator is not known to have."""
        return self._first

    def report(self) -> tuple[int, list[pb.LedgerEntry]]:
        """Return the sequence number of the first entry that is not acknowledged, and the entries from it on."""
        sizes = accumulate(entry.ByteSize() for entry in self._entries[: min(self._reportable, REPORT_ENTRIES)])
        count = sum(1 for size in takewhile(lambda size: size <= _REPORT_BYTES, sizes))
        entries = self._entries[: max(count, min(self._reportable, 1))]  # one goes, whatever it takes
        self._handed_out = max(self._handed_out, self._first + len(entries))
        return self._first, entries

    @property
    def _reportable(self) -> int:
        """Entries before the first that is withheld."""
        return min(self._withheld, default=self._first + len(self._entries)) - self._first

    def kept(self, sequence: int) -> None:
        """Drop the entries below `sequence`: the coordinator has stored them."""
        gone = min(max(sequence - self._first, 0), len(self._entries))
        del self._entries[:gone]
        self._first += gone
        due = [act for number, act in self._awaited if number <= self._first]
        self._awaited = [(number, act) for number, act in self._awaited if number > self._first]
        for act in due:
            act()

    def after_kept(self, act: Callable[[], None]) -> None:
        """Call `act` once the coordinator has every entry made so far: what rests on them must not outlive them."""
        self._after(self._first + len(self._entries), act)

    def after_adopted(self, act: Callable[[], None]) -> None:
        """Call `act` once the coordinator has every entry of dead servers: nobody else has them any more."""
        self._after(self._adopted, act)

    def _after(self, number: int, act: Callable[[], None]) -> None:
        if number > self._first:
            self._awaited.append((number, act))
        else:
            act()

    @property
    def is_awaited(self) -> bool:
        """Return whether something waits for entries to be kept that may be reported."""
        return bool(self._awaited) and self._reportable > 0

    @property
    def waiting(self) -> int:
        """Entries that the coordinator does not have."""
        return len(self._entries)
