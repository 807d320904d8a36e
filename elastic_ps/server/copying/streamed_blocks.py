"""This module knows of which blocks a follow stream sends updates, and which acknowledgements are about them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.model import Run
from elastic_ps.core.segments import grown, runs_of

Mask = NDArray[np.bool_]


class StreamedBlocks:
    """`StreamedBlocks` are those of which the follower has been sent a SNAPSHOT, and is sent each update from then on.

    An acknowledgement counts if it answers the SNAPSHOT with which a block's stream began, or something behind it.
    What comes before is about an earlier stream, of a plan that was cancelled perhaps: that copy is gone. Guarded by
    `ServerState.changed`.

    Args:
        blocks: how many the model has.

    Attributes:
        mask: by block, whether it is streamed.
    """

    def __init__(self, blocks: int):
        self.mask: Mask = np.zeros(blocks, dtype=bool)
        self._began = np.zeros(blocks, dtype=np.int64)  # by block: the number of its SNAPSHOT
        self._counts: Mask = np.zeros(blocks, dtype=bool)  # by block, whether what the follower says is about this
        self._snapshots = 0

    def keep(self, wanted: Mask) -> None:
        """End the streams of all blocks but some; `wanted` has every block of the model, which may have grown."""
        new = len(wanted) - len(self.mask)
        self.mask = grown(self.mask, len(wanted)) & wanted
        self._began = np.pad(self._began, (0, new))
        self._counts = grown(self._counts, len(wanted)) & wanted

    def drop(self, run: Run) -> None:
        """End the streams of a run."""
        self.mask[run[0] : sum(run)] = self._counts[run[0] : sum(run)] = False

    def begin(self, segment: Run) -> int:
        """Begin the streams of a segment; return the number of the SNAPSHOT that does it."""
        self._snapshots += 1
        window = slice(segment[0], sum(segment))
        self.mask[window], self._counts[window], self._began[window] = True, False, self._snapshots
        return self._snapshots

    def are_level(self, blocks: NDArray[np.int64], wanted: Mask) -> None:
        """Begin without a SNAPSHOT the streams of those of some blocks, by id, that are wanted: the follower has them
        as they are.
        """
        self.mask[blocks] = self._counts[blocks] = wanted[blocks]

    def counted(self, runs: Sequence[Run], snapshot: int) -> list[Run]:
        """Return of which blocks an acknowledgement counts.

        Args:
            runs: that it names.
            snapshot: the number of the SNAPSHOT that it answers; 0: it answers a RECORD.
        """
        named = np.zeros(len(self.mask), dtype=bool)
        for first, count in runs:
            named[first : first + count] = True
        if snapshot:
            self._counts |= named & self.mask & (self._began == snapshot)
        return runs_of(named & self._counts)
