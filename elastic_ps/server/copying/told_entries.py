"""This module knows which entries of an owner's ledger a follower has been told on its stream, beside its records."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from elastic_ps.control.codec import runs_from_pb
from elastic_ps.core.model import Run
from elastic_ps.core.segments import grown, has_any, mask_of, runs_of
from elastic_ps.server.copying.streamed_blocks import Mask
from protos import elastic_pb2 as pb

WrittenFrom = Callable[[int], Sequence[tuple[int, pb.LedgerEntry]]]
"""Returns the entries from a number on that the coordinator does not have, with their numbers."""


class ToldEntries:
    """`ToldEntries` gives a stream each entry once, for all blocks whose snapshots are to come, and not for each piece.

    There are as many as steps since the coordinator was there last. What is streamed has them with its records.
    """

    def __init__(self) -> None:
        self._blocks: Mask = np.zeros(0, dtype=bool)  # of which everything below `_next` has been told
        self._next = 0
        self._last: tuple[int, ...] = ()  # the runs of the entry before, as they were told: it may get more of them

    def news(
        self, wanted: Mask, streamed: Mask, written: WrittenFrom
    ) -> Iterator[tuple[int, pb.LedgerEntry, tuple[Run, ...]]]:
        """Yield what is to be told before snapshots of blocks: entries, with their numbers and runs.

        Args:
            wanted: by block, whether it is to be there; of those that are not streamed snapshots are to come.
            streamed: by block, whether it is.
            written: this server's ledger.
        """
        coming = wanted & ~streamed
        if not has_any(coming):
            return
        known = grown(self._blocks, len(coming))
        if has_any(coming & ~known):
            self._next = 0
        self._blocks = known | coming
        for sequence, entry in written(max(self._next - 1, 0)):
            runs = tuple(entry.runs)
            if sequence < self._next and runs == self._last:
                continue
            self._next, self._last = sequence + 1, runs
            of = mask_of(runs_from_pb(entry.runs))
            updated = tuple(runs_of(of & (self._blocks & ~streamed)[: len(of)]))
            if updated:
                yield sequence, entry, updated
