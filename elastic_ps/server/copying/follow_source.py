"""A `FollowSource` feeds the new owner of blocks, until it holds the same bytes and takes over.

It sends a SNAPSHOT of each block while training goes on, from then on a RECORD of each update of the block, and at the
switch the HANDOVER (DL2 section 5, step 3; "A plan" in docs/reference/protocol.md). The follower applies the records by
the same rule, and so holds equal bytes. What shadow workers are sent is in `shadows`.

`next_piece` copies one piece under the lock; the service's pump calls it with pauses, and `SnapshotPace` spreads the
whole, so that training feels little.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.copying.snapshot_pace import SnapshotPace
from elastic_ps.server.copying.update_records import UpdateRecords
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.frame_metas import HandoverMeta, Meta, RecordMeta, SnapshotMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.send_queue import Link

PIECE_BYTES = 4 << 20
"""Values that one piece holds, where a block is not larger: what one hold of the lock copies."""

BACKLOG_BYTES = 16 << 20
"""No further piece while more than this waits to be sent."""

_RECORDS_BYTES = 1 << 30  # records waiting for a follower that cannot keep up must not fill the memory
_STEPS = 20  # a lag that has not shrunk for so many steps: the design's figure


def next_run(store: ServerBlockStore, pending: NDArray[np.bool_]) -> Run | None:
    """Return the next run to copy: alike in memory, treatment and version, of about `PIECE_BYTES`."""
    ids = np.flatnonzero(pending & (store.status == BlockStatus.PRIMARY))
    if not len(ids):
        return None
    gaps = np.flatnonzero(np.diff(ids) != 1)
    run = int(ids[0]), int(gaps[0]) + 1 if len(gaps) else len(ids)
    first, count = next(iter(store.segments(run, store.versions)))
    sizes = np.cumsum(store.extents[first : first + count])
    return first, max(1, int(np.searchsorted(sizes, PIECE_BYTES, side="right")))


@dataclass(frozen=True)
class Frozen:
    """`Frozen` is what an old owner kept when it switched, until the plan is committed.

    Attributes:
        held: blocks with values.
        empty: blocks to which first values had not come.
    """

    held: NDArray[np.int64]
    empty: NDArray[np.int64]


def freeze(store: ServerBlockStore, blocks: Sequence[int]) -> Frozen:
    """Stop the updates of blocks that go to a new owner."""
    ids = np.asarray(blocks, dtype=np.int64)
    frozen = Frozen(ids[store.status[ids] == BlockStatus.PRIMARY], ids[store.status[ids] == BlockStatus.EMPTY])
    store.status[ids] = BlockStatus.FROZEN
    return frozen


class FollowSource:
    """A `FollowSource` is the old owner's end of a follow stream. Guarded by `ServerState.changed`.

    Args:
        store: this server's blocks.
        link: the connection to the new owner.
        number: id of the prepared configuration.
        blocks: the blocks that the new owner takes over.
        live: False: nothing is sent before the switch (pause mode).
        streams: how many streams this server feeds at the same time.

    Attributes:
        bytes_moved: payload sent, or waiting to be.
        fell_back: the follower could not keep up: its blocks go at the switch.
        records: memory of those that are on their way.
    """

    def __init__(
        self, store: ServerBlockStore, link: Link, number: ConfigId, blocks: Sequence[int], live: bool, streams: int = 1
    ):
        self.link = link
        self.blocks = np.asarray(blocks, dtype=np.int64)
        self.bytes_moved = 0
        self.fell_back = False
        self.records = UpdateRecords(store, link.connection.shared)
        self._store = store
        self._number = number
        self._live = live
        self._streams = streams
        self._announced = False
        self._handed_over = False
        self._moving = np.zeros(len(store.status), dtype=bool)
        self._moving[self.blocks] = True
        self._streamed = np.zeros(len(store.status), dtype=bool)
        segments = [part for run in store.alike(self.blocks) for part in store.segments(run)]
        self._pace = SnapshotPace(sum(store.image_bytes(segment) for segment in segments), time.monotonic(), streams)
        self._watched = 0
        self._lags: deque[int] = deque(maxlen=_STEPS + 1)

    def _send(
        self,
        meta: Meta,
        version: int = 0,
        payload: Sequence[Array] = (),
        sent: Callable[[], None] | None = None,
    ) -> None:
        self.bytes_moved += sum(part.nbytes for part in payload)
        self.link.enqueue(Frame(meta, self._number, version), payload, sent)

    # ---- while training goes on --------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Return whether `next_piece` would do something."""
        if not self._live or self._handed_over or self.fell_back or self.link.backlog > BACKLOG_BYTES:
            return False
        if self._pending().any():
            return self._pace.allows(time.monotonic())
        return not self._announced and self.link.is_idle

    def _pending(self) -> NDArray[np.bool_]:
        pending: NDArray[np.bool_] = self._moving & ~self._streamed & (self._store.status == BlockStatus.PRIMARY)
        return pending

    def next_piece(self) -> None:
        """Copy and queue one piece; after the last, once all is sent, say that the stream has caught up."""
        piece = next_run(self._store, self._moving & ~self._streamed)
        if piece is not None:
            self._streamed[piece[0] : piece[0] + piece[1]] = True
            self._snapshot(piece, copy=True)
        elif self.link.is_idle:
            self._announced = True
            self._send(RecordMeta(caught_up=True))

    def _snapshot(self, segment: Run, copy: bool) -> None:
        first, count = segment
        image = self._store.image(segment)
        self._pace.sent += sum(part.nbytes for part in image)
        meta = SnapshotMeta(
            runs=(segment,),
            state=tuple(self._store.states(segment)),
            counts=tuple(self._store.counts[first : first + count].tolist()),
            applied=self._store.applied.image(segment),
        )
        self._send(meta, int(self._store.versions[first]), [part.copy() for part in image] if copy else image)

    def again(self, link: Link) -> "FollowSource":
        """Return the same stream on another connection, from its beginning: what was under way here may be lost."""
        source = FollowSource(self._store, link, self._number, self.blocks.tolist(), self._live, self._streams)
        source.bytes_moved, source.fell_back = self.bytes_moved, self.fell_back
        return source

    @property
    def followed(self) -> NDArray[np.bool_]:
        """By block, whether its updates are sent on."""
        return self._streamed

    def record(
        self, segment: Run, aggregate: GradientSum | Rows | None, hyper: Hyper | None, batch: BatchId | None
    ) -> tuple[GradientSum | Rows | None, Callable[[], None]]:
        """Prepare the record of an update of `segment`, of which all is followed, before it is applied here.

        Args:
            segment: alike in what its update needs.
            aggregate: that will be applied; None: nobody pushed these keys.
            hyper: the optimizer's values.
            batch: the batch that the segment takes, in an async or ssp job.

        Returns:
            The aggregate to apply, and what is to be called then: it sends what the aggregate has kept.
        """
        version, meta = int(self._store.versions[segment[0]]), RecordMeta(runs=(segment,), hyper=hyper, batch=batch)
        if aggregate is None:
            return None, lambda: self._send(replace(meta, absent=True), version)
        if isinstance(aggregate, Rows):
            payload = aggregate.payload()  # made for this update, so nobody changes it
            return aggregate, lambda: self._send(replace(meta, rows=(len(aggregate),)), version, payload)
        memory, place, sent = self.records.take(segment, aggregate.dtype)
        kept = replace(aggregate, kept=memory)  # what is sent must stay, the contributions will not
        return kept, lambda: self._send(replace(meta, slot=place), version, [memory], sent)

    def forget(self, run: Run) -> None:
        """Send a run anew: it was changed otherwise than by an update."""
        self._streamed[run[0] : sum(run)] = False

    def stepped(self, version: int, each: int) -> None:
        """Watch the follower's lag: blocks have reached `version`, of which a step takes `each`."""
        if version < self._watched + each or not self._live or self._handed_over or self.fell_back:
            return
        self._watched = version
        oldest = self.link.oldest_version()
        self._lags.append(max(version - oldest, 0) // each if oldest is not None else 0)
        stuck = len(self._lags) == self._lags.maxlen and self._lags[0] > 1 and min(self._lags) >= self._lags[0]
        if stuck or self.link.backlog > _RECORDS_BYTES:
            self._fall_back()

    def _fall_back(self) -> None:
        """Send the blocks at the switch instead (pause); what waits in the queue would only delay them."""
        self.fell_back = True
        self._streamed[:] = False
        self.link.withdraw()
        self._send(RecordMeta(pause=True))

    # ---- at the switch -----------------------------------------------------------------------------------------------

    def hand_over(self, frozen: Frozen, sent: Callable[[], None]) -> None:
        """Make the follower the primary of the blocks. Those that were not streamed here go with it.

        Args:
            frozen: the blocks; nothing writes to them any more.
            sent: called once the transport has taken everything.
        """
        store, held = self._store, frozen.held
        self._handed_over = True
        for run in store.alike(held, store.versions, self._streamed):
            if not self._streamed[run[0]]:
                for segment in store.segments(run):
                    self._snapshot(segment, copy=False)  # nothing writes to it
        for version in np.unique(store.versions[held]).tolist():
            runs = tuple(store.alike(held[store.versions[held] == version]))
            self._send(HandoverMeta(runs=runs), version)
        self._send(HandoverMeta(runs=tuple(store.alike(frozen.empty)), empty=True), sent=sent)
