"""A `CheckpointSnapshot` copies a server's blocks for a checkpoint while training goes on.

In a sync job they are at one version, the checkpoint's clock. In any other there is none: each block is saved as it is.
It is copy-on-write: an update that would change a block not yet written first copies it.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Array, has_any
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.phases import BlockStatus, having

_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class CopiedBlocks:
    """`CopiedBlocks` are blocks as they are saved, copied.

    Attributes:
        segment: blocks of one treatment.
        versions: the version of each block.
        counts: the optimizer's updates of each block.
        extents: the bytes of each block's values.
        parts: name ("" for the values), array.
        applied: by origin the number of the last batch that each block has taken.
    """

    segment: Run
    versions: list[int]
    counts: list[int]
    extents: list[int]
    parts: list[tuple[str, Array]]
    applied: dict[NodeId, list[int]]


class CheckpointSnapshot:
    """A snapshot holds a server's blocks at version `clock`, or as they are now. Guarded by `ServerState.changed`.

    Args:
        store: this server's blocks.
        clock: version to save.
        url: folder of the checkpoint, any fsspec URL.
        at_once: async and ssp: every block is saved at the version that it has, and the clock is only a name.
    """

    def __init__(self, store: ServerBlockStore, clock: int, url: str, at_once: bool = False):
        self.clock = clock
        self.url = url
        self._at_once = at_once
        self._store = store
        self._saved = np.zeros(len(store.status), dtype=bool)
        self._versions = np.zeros(len(store.status), dtype=np.int64)  # of those that are saved
        self._copied: deque[CopiedBlocks] = deque()

    def grow(self) -> None:
        """Take in that the model has new blocks."""
        new = len(self._store.status) - len(self._saved)
        self._saved, self._versions = np.pad(self._saved, (0, new)), np.pad(self._versions, (0, new))

    def before_update(self, segment: Run) -> None:
        """Copy those blocks of a segment that are about to leave the version to save."""
        if self._at_once or int(self._store.versions[segment[0]]) == self.clock:
            for run in self._store.segments(segment, self._saved):
                if not self._saved[run[0]]:
                    self._copied.append(self._copy(run))

    def _copy(self, segment: Run) -> CopiedBlocks:
        first, count = segment
        window = slice(first, first + count)
        self._saved[window] = True
        self._versions[window] = self._store.versions[window]
        parts = [("", self._store.value(segment)), *self._store.states(segment).items()]
        return CopiedBlocks(
            segment,
            self._store.versions[window].tolist(),
            self._store.counts[window].tolist(),
            self._store.extents[window].tolist(),
            [(name, array.copy()) for name, array in parts],
            self._store.applied.image(segment),
        )

    def is_late(self) -> bool:
        """Return whether a block has passed the clock without having been saved: the order came too late."""
        return not self._at_once and bool((self._unsaved() & (self._store.versions > self.clock)).any())

    def _unsaved(self) -> NDArray[np.bool_]:
        unsaved: NDArray[np.bool_] = having(self._store.status, BlockStatus.PRIMARY) > self._saved
        return unsaved

    def _ready(self) -> NDArray[np.bool_]:
        """Return by block whether it can be saved now."""
        return self._unsaved() if self._at_once else self._unsaved() & (self._store.versions == self.clock)

    def next_piece(self) -> CopiedBlocks | None:
        """Copy the next piece, or take one that an update has copied; None: nothing has reached the clock."""
        if self._copied:
            return self._copied.popleft()
        store = self._store
        ready = np.flatnonzero(self._ready())
        if not len(ready):
            return None
        run = next(store.alike(ready))
        first, count = next(store.segments(run))
        sizes = np.cumsum(store.extents[first : first + count])
        return self._copy((first, max(1, int(np.searchsorted(sizes, _PIECE_BYTES, side="right")))))

    @property
    def has_piece(self) -> bool:
        """Return whether `next_piece` gives one."""
        return bool(self._copied) or has_any(self._ready())

    def is_complete(self, undecided: bool) -> bool:
        """Return whether every block of this server is written.

        Args:
            undecided: a plan is prepared: the blocks on their way here are their old owners' yet, who save them.
        """
        coming = not undecided and len(self._store.held(BlockStatus.FOLLOWER)) > 0
        return not self._copied and not coming and not has_any(self._unsaved())

    def may_be_told(self, told: NDArray[np.int64]) -> bool:
        """Return whether followers have what is saved; `told`: by block, the latest version that they have."""
        known = len(told)
        return bool((self._versions[:known] <= told[: len(self._versions)])[self._saved[:known]].all())
