"""This module says which blocks one SNAPSHOT brings, or one VALUE for a shadow worker."""

from collections.abc import Iterator

import numpy as np

from elastic_ps.core.model import Run
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.copying.streamed_blocks import Mask
from elastic_ps.transport.frames import MAX_META_BYTES

PIECE_BYTES = 4 << 20
"""Values that one piece holds, where a block is not larger: what one hold of the lock copies."""

_NUMBERS_BYTES = MAX_META_BYTES // 2
"""What a frame says of its blocks by numbers: of each its updates and, in `async` and `ssp`, the last batch of every
worker that the job has had. Of a small model that is more than its values."""

_NUMBER_BYTES = 21  # the most that one takes, with its comma


def next_run(store: ServerBlockStore, pending: Mask) -> Run | None:
    """Return the next of the pending blocks to copy: alike in memory, treatment and version, of about `PIECE_BYTES`."""
    ids = np.flatnonzero(pending)
    if not len(ids):
        return None
    gaps = np.flatnonzero(np.diff(ids) != 1)
    run = int(ids[0]), int(gaps[0]) + 1 if len(gaps) else len(ids)
    first, count = next(iter(store.segments(run, store.versions)))
    sizes = np.cumsum(store.extents[first : first + count])
    return first, max(1, min(int(np.searchsorted(sizes, PIECE_BYTES, side="right")), _most_blocks(store)))


def pieces(store: ServerBlockStore, segment: Run) -> Iterator[Run]:
    """Yield a segment as runs of each of which a frame can say what is to be said, however many bytes they are."""
    most = _most_blocks(store)
    for first in range(segment[0], sum(segment), most):
        yield first, min(most, sum(segment) - first)


def _most_blocks(store: ServerBlockStore) -> int:
    return max(1, _NUMBERS_BYTES // (_NUMBER_BYTES * (1 + store.applied.origins)))
