"""The workers of a job without servers have one ledger together: each keeps its end, and the chief reports it.

An update is *settled* once every member has it. What is not may be made again by the next configuration, with other
slices, if whoever has it dies; so only settled updates are reported.
"""

import threading
from collections.abc import Iterable
from itertools import islice, takewhile

from protos import elastic_pb2 as pb

REPORT_ENTRIES = 2000
"""Most entries of one report: with all of a long time in which there was no coordinator none would ever arrive."""


class WorkersLedger:
    """A `WorkersLedger` holds the updates that the coordinator has not stored yet, at each member.

    Attributes:
        name: of the ledger of all workers together; versions number its entries.
    """

    def __init__(self) -> None:
        self.name = ""
        self._lock = threading.Lock()
        self._entries: dict[int, pb.LedgerEntry] = {}  # by version, ascending
        self._settled = 0

    def begin(self, name: str, entries: Iterable[pb.LedgerEntry]) -> None:
        """Take the ledger over from another member, or begin it."""
        with self._lock:
            self.name = name
            self._entries = {entry.version: entry for entry in entries}

    def append(self, entry: pb.LedgerEntry) -> None:
        """Add an update that was applied here."""
        with self._lock:
            self._entries[entry.version] = entry

    def settle(self, version: int) -> None:
        """Take note that every member holds a version."""
        with self._lock:
            self._settled = max(self._settled, version)

    @property
    def entries(self) -> list[pb.LedgerEntry]:
        """All that the coordinator has not stored, settled or not."""
        with self._lock:
            return list(self._entries.values())

    def report(self, request: pb.ReportRequest, is_chief: bool) -> None:
        """Add to a report what is to be stored, as far as it has room; who is not the chief only asks how far it is."""
        request.ledger_of = self.name
        if not is_chief:
            return
        with self._lock:
            settled = takewhile(lambda entry: entry.version < self._settled, self._entries.values())
            told = list(islice(settled, REPORT_ENTRIES))
        if told:
            request.ledger_sequence = told[0].version
            request.ledger.extend(told)

    def kept(self, version: int) -> None:
        """Drop what is stored: all below a version."""
        with self._lock:
            for number in list(takewhile(lambda number: number < version, self._entries)):
                del self._entries[number]
