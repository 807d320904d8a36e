"""A `FollowSource` feeds another server with copies of blocks: a standing follower's, or those that a plan makes.

It sends a SNAPSHOT of each block while training goes on, from then on a RECORD of each update of the block, and to the
new owner, at the switch, the HANDOVER (DL2 section 5, step 3; "A plan" in docs/reference/protocol.md). The follower
applies the records by the same rule, and so holds equal bytes. What shadow workers are sent is in `shadows`.

`next_piece` copies one piece under the lock; the server's background work calls it with pauses, and `SnapshotPace`
spreads the whole, so that training feels little.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array, grown, has_any
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.copying.snapshot_pace import SnapshotPace
from elastic_ps.server.copying.snapshot_pieces import next_run, pieces
from elastic_ps.server.copying.streamed_blocks import Mask, StreamedBlocks
from elastic_ps.server.copying.told_entries import ToldEntries, WrittenFrom
from elastic_ps.server.copying.update_records import OpenRecord, UpdateRecords
from elastic_ps.server.phases import BlockStatus, having
from elastic_ps.transport.frame_metas import HandoverMeta, Meta, RecordMeta, SnapshotMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.meta_parts import Written
from elastic_ps.transport.send_queue import Link

BACKLOG_BYTES = 16 << 20
"""No further piece while more than this waits to be sent."""

_RECORDS_BYTES = 1 << 30  # records waiting for a follower that cannot keep up must not fill the memory
_STEPS = 20  # a lag that has not shrunk for so many steps: the design's figure


@dataclass(frozen=True)
class Frozen:
    """`Frozen` is what an old owner kept when it switched, until the plan is committed.

    Attributes:
        held: blocks with values.
        empty: blocks to which first values had not come.
    """

    held: NDArray[np.int64]
    empty: NDArray[np.int64]


class FollowSource:
    """A `FollowSource` is the owner's end of a follow stream. Guarded by `ServerState.changed`.

    Args:
        store: this server's blocks.
        link: the connection to the follower.
        streams: how many streams this server feeds at the same time.
        written: returns what this server's ledger has and the coordinator does not; see `ToldEntries`.
        caught_up: called before the follower is told that a plan's stream has caught up.

    Attributes:
        bytes_moved: payload of the plan under way that is sent, or waiting to be; not what is followed anyway.
        fell_back: the follower could not keep up: the plan's blocks go at the switch.
        guards: workers wait for some of the plan's copies, as nobody else follows those blocks.
        records: memory of those that are on their way.
        ledger_kept: entries of this server's ledger below this number are with the coordinator.
    """

    def __init__(
        self,
        store: ServerBlockStore,
        link: Link,
        streams: int = 1,
        written: WrittenFrom = lambda _first: (),
        caught_up: Callable[[], None] = lambda: None,
    ):
        self.link = link
        self.bytes_moved = self.ledger_kept = 0
        self.fell_back = self.guards = False
        self.records = UpdateRecords(store, link.connection.shared)
        self._store = store
        self._streams = streams
        self._written = written
        self._told = ToldEntries()
        self._caught_up = caught_up
        self._number = self._plan = NO_CONFIGURATION
        self._live = False
        self._announced = True
        self._standing = np.zeros(len(store.status), dtype=bool)  # what the configuration in force wants here
        self._planned = np.zeros(len(store.status), dtype=bool)
        self._streamed = StreamedBlocks(len(store.status))
        self._open: OpenRecord | None = None
        self._pace = SnapshotPace(0, time.monotonic(), streams)
        self._watched = 0
        self._lags: deque[int] = deque(maxlen=_STEPS + 1)

    def wants(self, standing: Mask, number: ConfigId) -> None:
        """Send these blocks by configuration `number`, which is in force: they wait for no pace."""
        self._standing, self._number = standing, number
        self._planned = grown(self._planned, len(standing))
        self._streamed.keep(self._standing | self._planned)

    def begin_plan(self, planned: Mask, plan: ConfigId, live: bool, announce: bool = True) -> None:
        """Send more blocks, by a plan.

        Args:
            planned: the blocks of which it makes copies there, those that are there included.
            plan: id of its configuration.
            live: False: nothing is sent before the switch (pause mode).
            announce: the follower is to be told when it has caught up.
        """
        self._planned, self._plan, self._live, self._announced = planned, plan, live, not announce
        self.bytes_moved, self.fell_back = 0, False
        ids = np.flatnonzero(planned & ~self.followed)
        segments = [part for run in self._store.alike(ids) for part in self._store.segments(run)]
        total = sum(self._store.image_bytes(segment) for segment in segments)
        self._pace = SnapshotPace(total, time.monotonic(), self._streams)
        self._watched = 0
        self._lags.clear()

    def end_plan(self) -> None:
        """Send what the configuration in force wants, and no more."""
        self._planned = np.zeros_like(self._planned)
        self._plan, self._live, self._announced = NO_CONFIGURATION, False, True
        self.guards = False
        self._streamed.keep(self._standing)

    def is_level(self, blocks: NDArray[np.int64]) -> None:
        """Send of these blocks, which the follower has as they are here, only records from now on."""
        self._streamed.are_level(blocks, self._standing)

    def counted(self, runs: Sequence[Run], snapshot: int) -> list[Run]:
        """See `StreamedBlocks`."""
        return self._streamed.counted(runs, snapshot)

    def _send(
        self,
        meta: Meta,
        version: int = 0,
        payload: Sequence[Array] = (),
        sent: Callable[[], None] | None = None,
        number: ConfigId | None = None,
        moves: bool = True,
    ) -> None:
        self.bytes_moved += sum(part.nbytes for part in payload) if moves else 0
        self.link.enqueue(Frame(meta, self._number if number is None else number, version), payload, sent)

    # ---- while training goes on --------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Return whether `next_piece` would do something."""
        if self.link.closed or self.link.backlog > BACKLOG_BYTES:
            return False
        if has_any(self._pending(self._standing)):
            return True
        if not self._live or self.fell_back:
            return False
        if has_any(self._pending(self._planned)):
            return self._pace.allows(time.monotonic())
        return not self._announced and self.link.is_idle

    @property
    def is_copying(self) -> bool:
        """Return whether there is something to copy, or to say of it, now or later."""
        return self.is_paced or bool(self._pending(self._standing).any())

    @property
    def is_paced(self) -> bool:
        """Return whether a plan's copies are under way, which wait for their pace."""
        return self._plan != NO_CONFIGURATION

    def _pending(self, wanted: Mask) -> Mask:
        pending: Mask = wanted > self.followed
        if has_any(pending):
            pending &= having(self._store.status, BlockStatus.PRIMARY, BlockStatus.LEAVING)
        return pending

    def next_piece(self) -> None:
        """Copy and queue one piece, first of what workers wait for; after a plan's last, once all is sent, say that the
        stream has caught up.
        """
        piece = next_run(self._store, self._pending(self._standing))
        if piece is None and self._live:
            piece = next_run(self._store, self._pending(self._planned))
        if piece is not None:
            self._tell_written(self._standing | self._planned)
            self._snapshot(piece, copy=True)
        elif self._live and not self._announced and self.link.is_idle:
            self._announced = True
            self._caught_up()
            self._send(RecordMeta(caught_up=True), number=self._plan)

    def send_rest(self, blocks: NDArray[np.int64]) -> None:
        """Queue what has not been streamed of blocks, which nothing writes to any more."""
        rest = np.zeros(len(self._store.status), dtype=bool)
        rest[blocks] = True
        self._tell_written(rest)
        for run in self._store.alike(blocks, self._store.versions, self.followed):
            if not self.followed[run[0]]:
                for segment in self._store.segments(run):
                    for piece in pieces(self._store, segment):
                        self._snapshot(piece, copy=False)

    def _snapshot(self, segment: Run, copy: bool) -> None:
        first, count = segment
        image = self._store.image(segment)
        self._pace.sent += sum(part.nbytes for part in image)
        meta = SnapshotMeta(
            runs=(segment,),
            state=tuple(self._store.states(segment)),
            counts=tuple(self._store.counts[first : first + count].tolist()),
            applied=self._store.applied.image(segment),
            number=self._streamed.begin(segment),
        )
        number = self._plan if self._planned[first] and not self._standing[first] else self._number
        payload = [part.copy() for part in image] if copy else image
        self._send(meta, int(self._store.versions[first]), payload, number=number, moves=not self._standing[first])

    def again(self, link: Link) -> "FollowSource":
        """Return the same stream on another connection, from its beginning: what was under way here may be lost."""
        source = FollowSource(self._store, link, self._streams, self._written, self._caught_up)
        source.wants(self._standing, self._number)
        source.begin_plan(self._planned, self._plan, self._live, self._plan != NO_CONFIGURATION)
        source.bytes_moved, source.fell_back, source.guards = self.bytes_moved, self.fell_back, self.guards
        if self.fell_back and self.is_paced:
            source._send(RecordMeta(pause=True), number=self._plan)  # the follower may not have heard of it
        return source

    @property
    def followed(self) -> Mask:
        """By block, whether its updates are sent on."""
        return self._streamed.mask

    def record(
        self, segment: Run, aggregate: GradientSum | Rows | None
    ) -> tuple[GradientSum | Rows | None, Callable[[], None]]:
        """Prepare the record of an update of `segment`, of which all is followed, before it is applied here.

        Args:
            segment: alike in what its update needs; of the same version as what is to be sent with it.
            aggregate: that will be applied; None: nobody pushed these keys.

        Returns:
            The aggregate to apply, and what is to be called then: `send_record` will bring what the aggregate has kept.
        """
        if self._open is None:
            self._open = OpenRecord(int(self._store.versions[segment[0]]))
        opened = self._open
        if aggregate is None:
            return None, partial(opened.absent.append, segment)
        if isinstance(aggregate, Rows):  # made for this update, so nobody changes it
            return aggregate, partial(opened.add, segment, aggregate.payload(), len(aggregate))
        if opened.place is None:
            opened.place = self.records.place(opened.version)
        memory = self.records.memory(opened.place, segment, aggregate.dtype)
        if (other := aggregate.kept) is not None:  # another stream's, which has it first

            def copy() -> None:
                memory[...] = other
                opened.add(segment, [memory])

            return aggregate, copy
        kept = replace(aggregate, kept=memory)  # what is sent must stay, the contributions will not
        return kept, partial(opened.add, segment, [memory])

    def send_record(self, hyper: Hyper | None, batch: BatchId | None, written: Written | None) -> None:
        """Send what has been prepared since the last record, and applied here.

        Args:
            hyper: the optimizer's values.
            batch: the batch that the blocks take, in an async or ssp job.
            written: what the ledger says of it.
        """
        opened, self._open = self._open, None
        if opened is None or not (opened.runs or opened.absent):
            return
        moves = not self._standing[[*opened.runs, *opened.absent][0][0]]
        slot, sent = self.records.sending(opened.place) if opened.place is not None else (None, None)
        meta = RecordMeta(
            runs=tuple(opened.runs),
            absent=tuple(opened.absent),
            rows=tuple(opened.rows) if opened.rows else None,
            hyper=hyper,
            batch=batch,
            slot=slot,
            written=written,
            kept=self.ledger_kept,
        )
        self._send(meta, opened.version, opened.payload, sent, moves=moves)

    def _tell_written(self, wanted: Mask) -> None:
        """Send what has been written down of updates that snapshots of wanted blocks bring."""
        for sequence, entry, updated in self._told.news(wanted, self.followed, self._written):
            slices = tuple((part.worker, part.low, part.high) for part in entry.slices)
            written = Written(sequence, entry.epoch, entry.step, entry.exchange, slices)
            meta = RecordMeta(written=written, written_runs=updated, kept=self.ledger_kept)
            self._send(meta, entry.version, number=ConfigId(entry.term, entry.number))

    def forget(self, run: Run) -> None:
        """Send a run anew: it was changed otherwise than by an update."""
        self._streamed.drop(run)

    def stepped(self, version: int, each: int) -> None:
        """Watch the follower's lag: blocks have reached `version`, of which a step takes `each`."""
        if version < self._watched + each or not self._live or self.fell_back:
            return
        if self.guards or self._standing.any():  # workers wait for it, and so it never lags
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
        self._streamed.keep(np.zeros_like(self._planned))
        self.link.withdraw()
        self._told = ToldEntries()  # some of it was waiting, perhaps
        self._send(RecordMeta(pause=True), number=self._plan)

    # ---- at the switch -----------------------------------------------------------------------------------------------

    def hand_over(self, frozen: Frozen, sent: Callable[[], None]) -> None:
        """Make the follower the primary of the blocks. Those that were not streamed here go with it.

        Args:
            frozen: the blocks; nothing writes to them any more.
            sent: called once the transport has taken everything.
        """
        store, held = self._store, frozen.held
        self.send_rest(held)
        for version in np.unique(store.versions[held]).tolist():
            runs = tuple(store.alike(held[store.versions[held] == version]))
            self._send(HandoverMeta(runs=runs), version)
        self._send(HandoverMeta(runs=tuple(store.alike(frozen.empty)), empty=True), sent=sent)
