"""Streams of blocks to a peer: a snapshot of each, in pieces, then what each update adds.

A `Source` makes the new owner of a plan a follower (docs/protocol.md, "A plan"; DL2 section 5, step 3): SNAPSHOT of
each block while training goes on, from then on a RECORD of each update of it, and at the switch the HANDOVER. The
follower applies the records by the same rule and is byte-equal. A `Subscription` gives a shadow worker every VALUE.

`next_piece` copies one piece under the lock; the service's pump calls it with pauses, and `Pace` spreads the whole, so
that training feels little.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import ConfigId, NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.rows import Rows
from elastic_ps.core.segments import Array
from elastic_ps.server.applied import Batch
from elastic_ps.server.contributions import Aggregate
from elastic_ps.server.pace import Pace
from elastic_ps.server.phases import Status
from elastic_ps.server.records import Records
from elastic_ps.server.room import Outbox
from elastic_ps.server.store import Store
from elastic_ps.transport.frames import Frame, Kind
from elastic_ps.transport.link import Link

PIECE_BYTES = 4 << 20
"""Values that one piece holds, where a block is not larger: what one hold of the lock copies."""

_BACKLOG_BYTES = 16 << 20  # no further piece while more than this waits to be sent
_RECORDS_BYTES = 1 << 30  # records waiting for a follower that cannot keep up must not fill the memory
_STEPS = 20  # a lag that has not shrunk for so many steps: the design's figure


def _piece(store: Store, pending: NDArray[np.bool_]) -> Run | None:
    """The next run to copy: alike in memory, treatment and version, of about `PIECE_BYTES`."""
    ids = np.flatnonzero(pending & (store.status == Status.PRIMARY))
    if not len(ids):
        return None
    gaps = np.flatnonzero(np.diff(ids) != 1)
    run = int(ids[0]), int(gaps[0]) + 1 if len(gaps) else len(ids)
    first, count = next(iter(store.segments(run, store.versions)))
    sizes = np.cumsum(store.extents[first : first + count])
    return first, max(1, int(np.searchsorted(sizes, PIECE_BYTES, side="right")))


class Source:
    """The old owner's end of a follow stream. Guarded by `Room.changed`.

    Args:
        store: of this server.
        link: to the new owner.
        number: of the prepared configuration.
        blocks: that it takes over.
        live: False: nothing is sent before the switch (pause mode).
        streams: that this server feeds at the same time.

    Attributes:
        bytes_moved: payload sent, or waiting to be.
        fell_back: the follower could not keep up: its blocks go at the switch.
        records: memory of those that are on their way.
    """

    def __init__(self, store: Store, link: Link, number: ConfigId, blocks: Sequence[int], live: bool, streams: int = 1):
        self.link = link
        self.blocks = np.asarray(blocks, dtype=np.int64)
        self.bytes_moved = 0
        self.fell_back = False
        self.records = Records(store, link.connection.shared)
        self._store = store
        self._number = number
        self._live = live
        self._announced = False
        self._handed_over = False
        self._moving = np.zeros(len(store.status), dtype=bool)
        self._moving[self.blocks] = True
        self._streamed = np.zeros(len(store.status), dtype=bool)
        segments = [part for run in store.alike(self.blocks) for part in store.segments(run)]
        self._pace = Pace(sum(store.image_bytes(segment) for segment in segments), time.monotonic(), streams)
        self._watched = 0
        self._lags: deque[int] = deque(maxlen=_STEPS + 1)

    def _send(
        self,
        kind: Kind,
        version: int,
        payload: Sequence[Array] = (),
        sent: Callable[[], None] | None = None,
        **meta: Any,
    ) -> None:
        self.bytes_moved += sum(part.nbytes for part in payload)
        self.link.send(Frame(kind, self._number, version, meta=meta), payload, sent)

    # ---- while training goes on --------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `next_piece` would do something."""
        if not self._live or self._handed_over or self.fell_back or self.link.backlog > _BACKLOG_BYTES:
            return False
        if self._pending().any():
            return self._pace.allows(time.monotonic())
        return not self._announced and self.link.is_idle

    def _pending(self) -> NDArray[np.bool_]:
        pending: NDArray[np.bool_] = self._moving & ~self._streamed & (self._store.status == Status.PRIMARY)
        return pending

    def next_piece(self) -> None:
        """Copy and queue one piece; after the last, once all is sent, say that the stream has caught up."""
        piece = _piece(self._store, self._moving & ~self._streamed)
        if piece is not None:
            self._streamed[piece[0] : piece[0] + piece[1]] = True
            self._snapshot(piece, copy=True)
        elif self.link.is_idle:
            self._announced = True
            self._send(Kind.RECORD, 0, caught_up=True)

    def _snapshot(self, segment: Run, copy: bool) -> None:
        first, count = segment
        image = self._store.image(segment)
        self._pace.sent += sum(part.nbytes for part in image)
        self._send(
            Kind.SNAPSHOT,
            int(self._store.versions[first]),
            [part.copy() for part in image] if copy else image,
            runs=[[first, count]],
            state=list(self._store.states(segment)),
            counts=self._store.counts[first : first + count].tolist(),
            applied=self._store.applied.image(segment),
        )

    @property
    def followed(self) -> NDArray[np.bool_]:
        """By block, whether its updates are sent on."""
        return self._streamed

    def record(
        self, segment: Run, aggregate: Aggregate | Rows | None, hyper: Hyper | None, batch: Batch | None
    ) -> tuple[Aggregate | Rows | None, Callable[[], None]]:
        """An update of `segment`, of which all is followed, is about to be applied here.

        Returns:
            The aggregate to apply, and what is to be called then: it sends what the aggregate has kept.
        """
        meta: dict[str, Any] = {"hyper": hyper.to_dict()} if hyper is not None else {}
        if batch is not None:
            meta["batch"] = list(batch)
        version, runs = int(self._store.versions[segment[0]]), [list(segment)]
        if aggregate is None:
            return None, lambda: self._send(Kind.RECORD, version, runs=runs, absent=True, **meta)
        if isinstance(aggregate, Rows):
            payload = aggregate.payload()  # made for this update, so nobody changes it
            return aggregate, lambda: self._send(
                Kind.RECORD, version, payload, runs=runs, rows=[len(aggregate)], **meta
            )
        memory, slot, sent = self.records.take(segment, aggregate.dtype)
        if slot is not None:
            meta["slot"] = slot
        kept = replace(aggregate, kept=memory)  # what is sent must stay, the contributions will not
        return kept, lambda: self._send(Kind.RECORD, version, [memory], sent, runs=runs, **meta)

    def forget(self, run: Run) -> None:
        """A run was changed otherwise than by an update: it is sent anew."""
        self._streamed[run[0] : sum(run)] = False

    def stepped(self, version: int, each: int) -> None:
        """Blocks have reached `version`, of which a step takes `each`: watch the follower's lag."""
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
        self._send(Kind.RECORD, 0, pause=True)

    # ---- at the switch -----------------------------------------------------------------------------------------------

    def hand_over(self, sent: Callable[[], None]) -> None:
        """Freeze the blocks and make the follower their primary. Blocks that were not streamed go with it.

        Args:
            sent: called once the transport has taken everything.
        """
        store = self._store
        self._handed_over = True
        held = self.blocks[store.status[self.blocks] == Status.PRIMARY]
        for run in store.alike(held, store.versions, self._streamed):
            if not self._streamed[run[0]]:
                for segment in store.segments(run):
                    self._snapshot(segment, copy=False)  # frozen from now on: nothing writes to it
        for version in np.unique(store.versions[held]).tolist():
            runs = [list(run) for run in store.alike(held[store.versions[held] == version])]
            self._send(Kind.HANDOVER, version, runs=runs)
        empty = self.blocks[store.status[self.blocks] == Status.EMPTY]
        self._send(Kind.HANDOVER, 0, (), sent, runs=[list(run) for run in store.alike(empty)], empty=True)
        store.status[self.blocks] = Status.FROZEN


class Subscription:
    """What a shadow worker has been sent. Guarded by `Room.changed`.

    Args:
        node: the shadow.
        store: of this server.
        outbox: its connection.
    """

    def __init__(self, node: NodeId, store: Store, outbox: Outbox):
        self.node = node
        self._store = store
        self._outbox = outbox
        self._unsent = np.ones(len(store.status), dtype=bool)

    def grow(self) -> None:
        """The model has new blocks."""
        self._unsent = np.append(self._unsent, np.ones(len(self._store.status) - len(self._unsent), dtype=bool))

    @property
    def has_work(self) -> bool:
        """Whether `next_piece` would do something."""
        if not self._outbox.is_connected(self.node) or self._outbox.backlog(self.node) > _BACKLOG_BYTES:
            return False
        return bool((self._unsent & (self._store.status == Status.PRIMARY)).any())

    def next_piece(self, number: ConfigId) -> None:
        """Copy and queue one piece of the blocks that have not been sent."""
        piece = _piece(self._store, self._unsent)
        if piece is None:
            return
        self.sent(piece)
        frame = Frame(Kind.VALUE, number, int(self._store.versions[piece[0]]), meta={"runs": [list(piece)]})
        self._outbox.send(self.node, frame, [part.copy() for part in self._store.values.pieces(piece)])

    def sent(self, run: Run) -> None:
        """A VALUE of these blocks is on its way: only what changes them is owed now."""
        self._unsent[run[0] : run[0] + run[1]] = False
