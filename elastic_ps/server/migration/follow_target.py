"""A `FollowTarget` takes the snapshots, records and hand-overs of the blocks that a new owner gains."""

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId
from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.sparse_rows import payload_bytes, received
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.phases import BlockStatus, Moves
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HandoverMeta, RecordMeta, SnapshotMeta
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

    Attributes:
        copied: bytes of snapshots that have come.
    """

    def __init__(self, state: ServerState, switch: Callable[[], None]):
        self._state = state
        self._switch = switch
        self.copied = 0
        self._moves = Moves()
        self._number = NO_CONFIGURATION
        self._live = False
        self._caught_up: set[NodeId] = set()
        self._fell_back = False

    def begin(self, moves: Moves, live: bool, number: ConfigId) -> None:
        """Begin to follow by a plan that is prepared.

        Args:
            moves: the blocks that it takes from this server and gives to it.
            live: whether its streams bring everything before the switch.
            number: id of its configuration.
        """
        self._moves, self._live, self._number = moves, live, number
        self._caught_up, self._fell_back = set(), False

    def owing(self) -> list[NodeId]:
        """Return the old owners that have blocks to hand over yet."""
        status = self._state.store.status
        return [peer for peer, blocks in self._moves.into.items() if (status[blocks] == BlockStatus.FOLLOWER).any()]

    def await_configuration(self, sender: NodeId, number: ConfigId, closed: Callable[[], bool]) -> None:
        """Wait until a stream's configuration is known here, or the stream ends: it may be faster than the control
        plane.

        Args:
            sender: the old owner.
            number: id of the configuration.
            closed: whether the stream has ended.

        Raises:
            PeerLost: it has not come for long. The stream is opened again; meanwhile its sender's probes are answered.
        """
        with self._state.changed:
            known = self._state.changed.wait_for(
                lambda: closed() or not self._state.standing.is_new(number), _UNKNOWN_SECONDS
            )
        if not known:
            raise PeerLost(sender, f"its stream is of configuration {number}, of which nobody has told this server")

    def payload_bytes(self, frame: Frame) -> int:
        """Return the bytes that a follow stream's frame must bring.

        Raises:
            ProtocolError: blocks or rows that there are not.
        """
        store = self._state.store
        with self._state.changed:
            total = store.span(frame.runs)
            if isinstance(frame.meta, RecordMeta):
                record = frame.meta
                if record.rows is not None:
                    return sum(payload_bytes(store.model, record.runs, record.rows))
                return 0 if record.absent else total
            if frame.kind is Kind.SNAPSHOT:
                return sum(store.image_bytes(run) for run in frame.runs if self._holds(run))
            return 0

    def _holds(self, run: Run) -> bool:
        """Return whether a run follows, or has been handed over already and comes again, on another connection."""
        status = self._state.store.status[run[0] : sum(run)]
        return bool(np.isin(status, (BlockStatus.FOLLOWER, BlockStatus.PRIMARY)).all())

    def _follows(self, run: Run) -> bool:
        return bool((self._state.store.status[run[0] : sum(run)] == BlockStatus.FOLLOWER).all())

    def followed(self, sender: NodeId, frame: Frame, data: NDArray[np.uint8], check_open: Callable[[], None]) -> None:
        """Take a frame of a follow stream.

        Args:
            sender: the old owner.
            frame: without its payload.
            data: the payload.
            check_open: raises where the stream has begun again on another connection.

        Raises:
            ProtocolError: it does not continue what this follower holds.
        """
        state = self._state
        with state.changed:
            check_open()
            if frame.kind in (Kind.NOTICE, Kind.HANDOVER):
                self._adopt(frame.configuration)
            if frame.kind is Kind.NOTICE or not self._continues(sender, frame):
                return
            if isinstance(frame.meta, SnapshotMeta):
                (run,) = frame.runs
                state.store.load(run, data, frame.version, frame.meta.counts, frame.meta.applied or {})
                self.copied += data.nbytes
            elif isinstance(frame.meta, RecordMeta):
                self._record(sender, frame, frame.meta, data)
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

    def _continues(self, sender: NodeId, frame: Frame) -> bool:
        """Return whether a frame's stream is the one that feeds the blocks it names: else it is late, and dropped."""
        if sender not in self._moves.into or frame.configuration != self._number:
            log.info("dropped a late %s from %s, of configuration %s", frame.kind.name, sender, frame.configuration)
            return False
        return all(self._follows(run) for run in frame.runs)

    def _record(self, sender: NodeId, frame: Frame, record: RecordMeta, data: NDArray[np.uint8]) -> None:
        if not record.runs:
            self._caught_up.add(sender)
            self._fell_back |= record.pause
            self.answer_synced()
            return
        store = self._state.store
        self._require_version(sender, frame)
        (run,) = record.runs
        batch = BatchId(*record.batch) if record.batch is not None else None
        if record.rows is not None:
            (rows,) = received(store.model, record.runs, record.rows, [data])
            store.update_segment(run, rows, record.hyper, batch)
            return
        for segment in store.segments(run, store.counts):
            aggregate = None
            if not record.absent:
                start = int(store.positions[segment[0]] - store.positions[run[0]])
                gradient = data[start : start + store.span([segment])].view(store.treatment(segment[0]).dtype)
                aggregate = GradientSum([gradient])
            store.update_segment(segment, aggregate, record.hyper, batch)

    def _require_version(self, sender: NodeId, frame: Frame) -> None:
        for run in frame.runs:
            versions = self._state.store.versions[run[0] : sum(run)]
            if (versions != frame.version).any():
                raise ProtocolError(
                    f"{sender} sent {frame.kind.name} of blocks {run} at version {frame.version}, but this follower "
                    f"holds {versions.min()} to {versions.max()}: an update was lost"
                )

    def _take_over(self, sender: NodeId, frame: Frame, *, empty: bool) -> None:
        state = self._state
        if not empty:
            self._require_version(sender, frame)
        for run in frame.runs:
            state.store.status[run[0] : sum(run)] = BlockStatus.EMPTY if empty else BlockStatus.PRIMARY
        self.answer_arrived()
        state.retry()

    def answer_synced(self) -> None:
        """Answer SYNCED once every stream has said that it has caught up (its snapshots sent, its queue empty)."""
        prepared = self._state.standing.prepared
        if prepared is None or not self._live or not (self._moves.into or self._moves.fresh):
            return
        if self._caught_up >= set(self._moves.into):
            detail = "pause" if self._fell_back else ""
            self._state.control.acknowledge(pb.SYNCED, prepared.id, self._state.version, detail=detail)

    def answer_arrived(self) -> None:
        """Say when every hand-over has come: an old owner that leaves can be done without then."""
        state = self._state
        if self._moves.into and not len(state.store.held(BlockStatus.FOLLOWER)):
            state.control.acknowledge(pb.ARRIVED, state.standing.config_id, state.version)
