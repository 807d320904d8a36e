"""A void says what a restore takes back of the ledger."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BlockRun = tuple[int, int]
"""A run of blocks: the first one, and how many."""


@dataclass(frozen=True)
class Void:
    """After a restore, of what was applied in older terms only that counts which the checkpoint holds.

    Attributes:
        term: that the restore began.
        version: of the checkpoint's blocks; without a common version 0.
        floors: without a common version: first block, count, and the version that the checkpoint has these blocks at.
            Blocks that are in none of them are not in it.
        latest: the last term whose updates the checkpoint may hold. It may be an older one than that of the void
            before, where the job goes back to a checkpoint that it had gone back behind. None: in a void of before
            this was noted, any.
    """

    term: int
    version: int
    floors: tuple[tuple[int, int, int], ...] = ()
    latest: int | None = None

    def kept(self, term: int, version: int, runs: Sequence[BlockRun]) -> Sequence[BlockRun]:
        """Return those of some blocks for which an update that took them to their next version still counts.

        Args:
            term: in which the update was applied.
            version: that it was applied to.
            runs: of blocks that it was applied to.
        """
        if term >= self.term:
            return runs
        if self.latest is not None and term > self.latest:
            return ()
        if not self.floors:
            return runs if version < self.version else ()
        return tuple(self._overlaps(version, runs))

    def _overlaps(self, version: int, runs: Sequence[BlockRun]) -> Iterator[BlockRun]:
        for first, count in runs:
            for begin, length, floor in self.floors:
                low, high = max(first, begin), min(first + count, begin + length)
                if low < high and version < floor:
                    yield low, high - low


def without(runs: Sequence[BlockRun], kept: Sequence[BlockRun]) -> Sequence[BlockRun]:
    """Return what of `runs`, which are ascending and hold `kept`, is not in `kept`."""
    gone = []
    for first, count in runs:
        at = first
        for low, length in kept:
            if first <= low < first + count:
                if at < low:
                    gone.append((at, low - at))
                at = low + length
        if at < first + count:
            gone.append((at, first + count - at))
    return gone
