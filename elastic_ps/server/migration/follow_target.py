"""A `FollowTarget` takes the snapshots, records and hand-overs of the blocks of which a server has copies."""

import logging
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Raw, has_any, runs_of
from elastic_ps.core.sparse_rows import Rows, payload_bytes, received
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.phases import BlockStatus, Moves, having
from elastic_ps.server.state.acknowledged import NOTHING
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import FollowedMeta, HandoverMeta, RecordMeta, SnapshotMeta
from elastic_ps.transport.frames import Frame
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_UNKNOWN_SECONDS = 3.0

GRACE_SECONDS = 0.1
"""How long a server that is armed may finish its step after a peer has switched."""


class FollowTarget:
    """A `FollowTarget` takes the frames of the follow streams to this server.

    Public methods that streams call take the state's lock, the others are called under it.

    Args:
        state: the server's.
        switch: puts the prepared configuration in force.
        owned: called with the runs that have been handed over, and their version.
        tell: called then: there may be something to tell.

    Attributes:
        copied: bytes of snapshots that have come.
    """

    def __init__(
        self,
        state: ServerState,
        switch: Callable[[], None],
        owned: Callable[[list[Run], int], None],
        tell: Callable[[], None],
    ):
        self._state = state
        self._tell = tell
        self._switch = switch
        self._owned = owned
        self.copied = 0
        self._moves = Moves()
        self._number = NO_CONFIGURATION
        self._live = False
        self._caught_up: set[NodeId] = set()
        self._fell_back = False
        self._missed: dict[
            NodeId, ConfigId
        ] = {}  # by owner: a plan's stream that came before the plan, and was dropped

    def begin(self, moves: Moves, live: bool, number: ConfigId) -> None:
        """Begin to follow by a plan that is prepared.

        Args:
            moves: the blocks that it takes from this server and gives to it.
            live: whether its streams bring everything before the switch.
            number: id of its configuration.
        """
        self._moves, self._live, self._number = moves, live, number
        self._caught_up, self._fell_back = set(), False

    def missed(self) -> frozenset[NodeId]:
        """Return the owners whose streams have to begin again: their plan has come only now."""
        known = frozenset(owner for owner, number in self._missed.items() if not self._state.standing.is_new(number))
        for owner in known:
            del self._missed[owner]
        return known

    def owing(self) -> list[NodeId]:
        """Return the old owners that have blocks to hand over yet."""
        status = self._state.store.status
        return [peer for peer, blocks in self._moves.into.items() if having(status[blocks], BlockStatus.FOLLOWER).any()]

    def await_configuration(self, sender: NodeId, number: ConfigId, closed: Callable[[], bool]) -> None:
        """Wait until a stream's configuration is known here, or the stream ends: it may be faster than the control
        plane.

        Where it has not come for long, what is of that plan is dropped, and its stream begins again when it has.

        Args:
            sender: the old owner.
            number: id of the configuration.
            closed: whether the stream has ended.
        """
        with self._state.changed:
            standing = self._state.standing
            if not standing.is_new(number) or self._missed.get(sender) == number:
                return
            known = self._state.changed.wait_for(
                lambda: closed() or not self._state.standing.is_new(number), _UNKNOWN_SECONDS
            )
            if not known:
                log.warning(
                    "%s sends blocks of configuration %s, of which the coordinator has not told this server in %g s: "
                    "they are dropped, and sent again when it has",
                    *(sender, number, _UNKNOWN_SECONDS),
                )
                self._missed[sender] = number

    def payload_bytes(self, frame: Frame) -> list[int]:
        """Return the bytes that a follow stream's frame must bring, of each run.

        Raises:
            ProtocolError: blocks or rows that there are not.
        """
        store = self._state.store
        with self._state.changed:
            store.span(frame.runs)
            if isinstance(frame.meta, RecordMeta):
                record = frame.meta
                store.span(record.absent)
                if record.rows is not None:
                    return payload_bytes(store.model, record.runs, record.rows)
                return [store.span([run]) for run in record.runs]
            if frame.kind is Kind.SNAPSHOT:
                return [store.image_bytes(run) for run in frame.runs]
            return []

    def followed(
        self,
        sender: NodeId,
        frame: Frame,
        data: list[Raw],
        check_open: Callable[[], None],
        answer: Callable[[Frame], None],
    ) -> None:
        """Take a frame of a follow stream.

        Args:
            sender: the old owner.
            frame: without its payload.
            data: the payload, of each run.
            check_open: raises where the stream has begun again on another connection.
            answer: called with the acknowledgement of what this follower has now. Of updates it is called before they
                are applied: nobody sees them before that, as the lock is held, and workers go on meanwhile.

        Raises:
            ProtocolError: it does not continue what this follower holds, or comes from no owner.
        """
        state = self._state
        with state.changed:
            check_open()
            if frame.kind in (Kind.NOTICE, Kind.HANDOVER):
                self._adopt(frame.configuration)
            if frame.kind is not Kind.NOTICE and self._is_owner(sender, frame):
                self._take_frame(sender, frame, data, answer)

    def _is_owner(self, sender: NodeId, frame: Frame) -> bool:
        """Return whether a sender may own blocks; what the dead send is dropped, and what comes before its plan.

        Raises:
            ProtocolError: it is in no configuration, of a term before the job was restored perhaps: its copies would
                pass for those of the job as it is.
        """
        standing = self._state.standing
        if sender in standing.dead:
            return False
        if not standing.knows(sender) and not standing.is_new(frame.configuration):
            raise ProtocolError(
                f"{sender} sent {frame.kind.name}, but is in no configuration that this server knows (in force: "
                f"{standing.config_id})"
            )
        return standing.knows(sender)

    def _take_frame(self, sender: NodeId, frame: Frame, data: list[Raw], answer: Callable[[Frame], None]) -> None:
        slot = frame.meta.slot if isinstance(frame.meta, RecordMeta) else None

        def acknowledge(held: list[Run], version: int, snapshot: int = 0) -> None:
            if held or slot is not None:
                meta = FollowedMeta(runs=tuple(held), slot=slot, snapshot=snapshot)
                answer(Frame(meta, frame.configuration, version))

        if isinstance(frame.meta, SnapshotMeta):
            acknowledge(self._snapshot(frame, frame.meta, data[0]), frame.version, frame.meta.number)
        elif isinstance(frame.meta, RecordMeta):
            self._record(sender, frame, frame.meta, data, acknowledge)
        elif isinstance(frame.meta, HandoverMeta):
            self._take_over(sender, frame, empty=frame.meta.empty)
        else:
            raise ProtocolError(f"{sender} sent {frame.kind.name} on a follow stream")

    def _adopt(self, number: ConfigId) -> None:
        """Switch, since an old owner has; a server that is close to the clock itself first finishes its step."""
        state = self._state
        if state.standing.clock is not None and len(state.owned()):
            state.changed.wait_for(lambda: not state.standing.decided(number), GRACE_SECONDS)
        if state.standing.decided(number):
            self._switch()

    def _snapshot(self, frame: Frame, snapshot: SnapshotMeta, data: NDArray[np.uint8]) -> list[Run]:
        """Replace copies that are not newer by whole ones; what is no copy stays."""
        store, version = self._state.store, frame.version
        (run,) = frame.runs
        window = slice(run[0], sum(run))
        takes = having(store.status[window], BlockStatus.FOLLOWER) & (store.versions[window] <= version)
        self.copied += data.nbytes
        if takes.all():
            store.load(run, data, version, snapshot.counts, snapshot.applied or {})
        elif takes.any():
            raise ProtocolError(f"blocks {run} at version {version} are one snapshot, but not alike here")
        return self._copies(run)

    def _copies(self, run: Run) -> list[Run]:
        """Return which blocks of a run this server has whole copies of."""
        store, window = self._state.store, slice(run[0], sum(run))
        held = having(store.status[window], BlockStatus.FOLLOWER) & (store.versions[window] > NOTHING)
        return [(run[0] + first, count) for first, count in runs_of(held)]

    def _record(
        self,
        sender: NodeId,
        frame: Frame,
        record: RecordMeta,
        data: list[Raw],
        acknowledge: Callable[[list[Run], int], None],
    ) -> None:
        if record.written is not None:
            runs = [*record.runs, *record.written_runs]
            self._state.store.span(runs)
            self._state.followed_ledger.keep(sender, frame.configuration, frame.version, record.written, runs)
            self._state.followed_ledger.kept(sender, record.kept)
        if not (record.runs or record.absent):
            if record.written is None and self._number == frame.configuration:
                self._caught_up.add(sender)
                if record.pause:
                    self._fall_back(sender)
                self.answer_synced()
            return
        store = self._state.store
        pushed: Sequence[Rows | Raw] = data
        if record.rows is not None:
            pushed = received(store.model, record.runs, record.rows, data)
        updated = [*record.runs, *record.absent]
        for run in updated:
            window = slice(run[0], sum(run))
            copies = having(store.status[window], BlockStatus.FOLLOWER)
            if has_any(copies & (store.versions[window] < frame.version)):
                raise ProtocolError(
                    f"{sender} sent an update of blocks {run} at version {frame.version}, but this follower "
                    f"holds versions from {store.versions[window].min()}: an update was lost"
                )
        version = frame.version + bool(record.runs or record.batch is None)
        acknowledge([held for run in updated for held in self._copies(run)], version)
        for run, part in zip(updated, [*pushed, *([None] * len(record.absent))], strict=True):
            for segment in store.segments(run, store.counts, store.status, store.versions):
                if store.status[segment[0]] == BlockStatus.FOLLOWER and store.versions[segment[0]] == frame.version:
                    self._update(segment, run, record, part)

    def _fall_back(self, sender: NodeId) -> None:
        """Take note that an owner sends its blocks at the switch: what has come of them is no copy, and grows old."""
        state, current = self._state, self._state.standing.current
        self._fell_back = True
        owned = current.blocks_of.get(sender, ()) if current is not None else ()
        copies = [block for block in owned if state.store.status[block] == BlockStatus.FOLLOWER]
        state.store.versions[[block for block in copies if not state.is_named(block)]] = NOTHING

    def _update(self, segment: Run, run: Run, record: RecordMeta, data: Rows | Raw | None) -> None:
        store = self._state.store
        if data is not None and (wrong := store.refusal(segment[0], record.hyper)):
            raise ProtocolError(f"an update of blocks {segment} that no owner makes: {wrong}")
        if isinstance(data, Rows) and not store.treatment(segment[0]).takes_rows(record.hyper):
            raise ProtocolError(f"an update of some rows of blocks {segment}, whose rule needs all")
        batch = BatchId(*record.batch) if record.batch is not None else None
        aggregate: GradientSum | Rows | None = None
        if isinstance(data, Rows):
            aggregate = data if segment == run else data.between(store.row_updates.rows(segment))
        elif data is not None:
            start = int(store.positions[segment[0]] - store.positions[run[0]])
            gradient = data[start : start + store.span([segment])].view(store.treatment(segment[0]).dtype)
            aggregate = GradientSum([gradient])
        store.update_segment(segment, aggregate, record.hyper, batch)

    def _take_over(self, sender: NodeId, frame: Frame, *, empty: bool) -> None:
        state, store = self._state, self._state.store
        current, number = state.standing.current, frame.configuration
        for run in frame.runs:
            for segment in store.alike(np.arange(run[0], sum(run)), store.versions):
                block = segment[0]
                mine = number > state.standing.config_id or (
                    current is not None and current.primary(block) == state.node
                )
                if store.status[block] != BlockStatus.FOLLOWER or not mine:
                    continue
                if not empty and store.versions[block] != frame.version:
                    raise ProtocolError(
                        f"{sender} sent HANDOVER of blocks {segment} at version {frame.version}, but this follower "
                        f"holds version {store.versions[block]}: an update was lost"
                    )
                store.status[block : sum(segment)] = BlockStatus.EMPTY if empty else BlockStatus.PRIMARY
                if empty:
                    store.versions[block : sum(segment)] = 0
                else:
                    self._owned([segment], frame.version)
        self.answer_arrived()
        state.retry()
        self._tell()

    def answer_synced(self) -> None:
        """Answer SYNCED once every stream has said that it has caught up (its snapshots sent, its queue empty)."""
        prepared = self._state.standing.prepared
        if prepared is None or not self._live or not (self._moves.feeders or self._moves.fresh):
            return
        if self._caught_up >= set(self._moves.feeders):
            detail = "pause" if self._fell_back else ""
            self._state.control.acknowledge(pb.SYNCED, prepared.id, self._state.version, detail=detail)

    def answer_arrived(self) -> None:
        """Say when every hand-over has come: an old owner that leaves can be done without then.

        With followers it also says that the coordinator has what dead servers had written down of this one's blocks.
        """
        state = self._state
        current = state.standing.current
        if current is not None and (current.followers or state.standing.replicated):
            if state.standing.is_member and not state.is_awaiting_blocks():
                number, version = current.id, state.version
                state.ledger.after_adopted(lambda: state.control.acknowledge(pb.ARRIVED, number, version))
            return
        if self._moves.into and not len(state.store.held(BlockStatus.FOLLOWER)):
            state.control.acknowledge(pb.ARRIVED, state.standing.config_id, state.version)
