"""This module serves the workers' frames, as `phases` judges them.

PUSH is in `sync_updates` and `async_updates` (async, ssp). Beside what `transport.frames` lists, the optimizer's
state travels so:

    PULL with "states": true  -> SNAPSHOT frames, whose "state" names the arrays and "dtypes" their dtypes; with
                                 "numbers": true without payload. They repeat the "request" of the PULL
    SNAPSHOT from the chief   loads state and counts; the payload holds the state arrays alone, no values
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Raw, stretches
from elastic_ps.optimizers.gradient_sum import Contribution
from elastic_ps.server.copying.follow_source import BACKLOG_BYTES
from elastic_ps.server.phases import BlockStatus, FrameVerdict, having, judge
from elastic_ps.server.state.held_frames import HeldFrame
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.server.updates import payloads
from elastic_ps.server.updates.async_updates import AsyncUpdates
from elastic_ps.server.updates.intake import Intake
from elastic_ps.server.updates.sync_updates import SyncUpdates
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import InitMeta, PullMeta, PushMeta, SnapshotMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image

_READS = (Kind.PULL, Kind.SUBSCRIBE)

_FRAME_BYTES = 1 << 10
_HELD_BYTES, _HELD_SLABS = 64 << 20, 16
"""A worker may have so many bytes, and so many times the model, held here: a step, what it has sent of it before, and
an optimizer's states are a few times the model. A frame counts as `_FRAME_BYTES` and what it brings."""


class PushMode(Protocol):
    """A `PushMode` says how pushes become updates, and which values workers see: a job's consistency decides it."""

    def take_push(self, node: NodeId, frame: Frame, data: list[Contribution]) -> None:
        """Add a push to the updates that it is part of.

        Args:
            node: the worker who pushed.
            frame: the push, of the configuration in force, by a worker of its roster.
            data: the payload, by run.
        """

    def answer_pull(self, node: NodeId, frame: Frame, blocks: NDArray[np.int64]) -> None:
        """Send a worker the values of blocks, all of which are here.

        Args:
            node: the worker.
            frame: the pull.
            blocks: ids.
        """

    def begin_subscription(self, node: NodeId) -> None:
        """Send every value from now on."""

    def tell(self) -> None:
        """Send the values that were withheld from workers, and that followers have by now."""


class WorkerFrames:
    """`WorkerFrames` judges and serves what workers send. Public methods take the state's lock.

    Args:
        state: the server's.
        switch: puts the prepared configuration in force; called under the lock.
    """

    def __init__(self, state: ServerState, switch: Callable[[], None]):
        self._state = state
        self._switch = switch
        intake = Intake(state, self._hold)
        self._sync = SyncUpdates(state, switch, intake)
        self._async = AsyncUpdates(state, intake)
        self._serve: dict[Kind, Callable[[NodeId, Frame, Any], None]] = {
            Kind.PUSH: lambda node, frame, data: self._mode.take_push(node, frame, data),
            Kind.PULL: self._pull,
            Kind.INIT: self._init,
            Kind.SUBSCRIBE: lambda node, _frame, _data: self._mode.begin_subscription(node),
            Kind.SNAPSHOT: self._load_states,
            Kind.FACTOR: lambda node, frame, _data: self._sync.take_factor(node, frame),
        }

    @property
    def _mode(self) -> PushMode:
        return self._sync if self._state.data.is_sync else self._async

    def arrived(self, node: NodeId, frame: Frame, data: list[Raw], check_open: Callable[[], None]) -> None:
        """Take a worker's frame.

        Args:
            node: the worker.
            frame: without its payload.
            data: the payload, in the memory that `buffers` gave.
            check_open: raises where the worker has another connection by now, on which it sends all again.

        Raises:
            ProtocolError: a frame that no correct worker sends.
        """
        decoded = payloads.decoded(frame, data, self._state.store)  # without the lock: what it reads only ever grows
        with self._state.changed:
            check_open()
            if frame.kind is Kind.FACTOR:
                self._judge_factor(node, frame)
            elif frame.kind in self._serve:
                self._judge(node, frame, decoded)
            elif frame.kind is not Kind.NOTICE:
                raise ProtocolError(f"a worker sent {frame.kind.name}")
            elif self._state.standing.decided(frame.configuration):
                self._switch()
        if frame.kind is Kind.FACTOR:
            self._sync.go_on()  # in this thread alone: others serve their workers meanwhile

    def buffers(self, node: NodeId, frame: Frame, gradients: Image | None, check_open: Callable[[], None]) -> list[Raw]:
        """Return where the payload that a worker's frame must bring is received: an array for each run.

        Args:
            node: the worker.
            frame: without its payload.
            gradients: memory of the worker's own, where a push that will be served lands, and stays until it is
                applied; None: it lands in new memory.
            check_open: see `arrived`.

        Raises:
            ProtocolError: blocks that the model does not have.
        """
        state = self._state
        with state.changed:
            check_open()  # else it would take back what has been sent again
            state.store.span([*frame.runs, *_absent(frame)])
            if frame.kind is Kind.SNAPSHOT:
                return [np.empty(state.store.state_bytes(run), dtype=np.uint8) for run in frame.runs]
            if frame.kind not in (Kind.PUSH, Kind.INIT):
                return []
            spans = [state.store.model.span(run) for run in frame.runs]
            if (sizes := payloads.sizes(frame, state.store)) is not None:
                return [np.empty(size, dtype=np.uint8) for size in sizes]
            serves = frame.kind is Kind.PUSH and self._verdict(node, frame) is FrameVerdict.SERVE
            serves = serves and not self._is_past(frame)  # else it would take back what was pushed since
            if serves:
                state.gathering.withdraw(node, frame.runs)
            if gradients is None or not serves:
                return [np.empty(span.stop - span.start, dtype=np.uint8) for span in spans]
            return [gradients.array[span] for span in spans]

    def tell(self) -> None:
        """Send workers what was withheld, and what followers have by now. Called under the lock."""
        self._mode.tell()

    def resubscribe(self, node: NodeId) -> None:
        """Begin a shadow's subscription again: what it was sent on its old connection may be lost. Called under the
        lock.
        """
        self._mode.begin_subscription(node)

    # ---- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self, node: NodeId, frame: Frame, data: Sequence[Contribution]) -> None:
        state = self._state
        verdict = self._verdict(node, frame)
        if verdict is FrameVerdict.STALE:
            state.refuse(node, Reason.STALE, f"this is configuration {state.standing.config_id}")
        elif verdict is FrameVerdict.UNKNOWN:
            state.refuse(node, Reason.UNKNOWN, f"{node} is not in configuration {state.standing.config_id}")
        elif verdict is FrameVerdict.HOLD:
            self._hold(node, frame, data)
        else:
            self._serve[frame.kind](node, frame, data)

    def _judge_factor(self, node: NodeId, frame: Frame) -> None:
        """Judge a frame that may make updates of all blocks; they are postponed to `SyncUpdates.go_on`."""
        self._sync.postpones = True
        try:
            self._judge(node, frame, ())
        finally:
            self._sync.postpones = False

    def _verdict(self, node: NodeId, frame: Frame) -> FrameVerdict:
        if self._state.standing.decided(frame.configuration):
            self._switch()
        return judge(self._state.standing, frame.configuration, node, reads=frame.kind in _READS)

    def _is_past(self, frame: Frame) -> bool:
        """Return whether all blocks of a push have its update already, so that it is only answered."""
        versions = self._state.store.versions
        return self._state.data.is_sync and all(versions[run[0] : sum(run)].min() > frame.version for run in frame.runs)

    def _hold(self, node: NodeId, frame: Frame, data: Sequence[Contribution]) -> None:
        """Judge a frame again when something has changed; the same frame sent again replaces it."""
        states = isinstance(frame.meta, PullMeta) and frame.meta.states
        key = (node, frame.kind, *frame.runs, "absent", *_absent(frame), states)
        size = _FRAME_BYTES + sum(part.nbytes for part in data)
        held = HeldFrame(lambda: self._judge(node, frame, data), node, key, size)
        self._state.held.hold(held, _HELD_BYTES + _HELD_SLABS * self._state.store.model.slab_bytes)

    def _blocks(self, node: NodeId, frame: Frame) -> NDArray[np.int64] | None:
        """Return the blocks of a request; None where they are not all here, or not at their followers: it is held."""
        state = self._state
        if not frame.runs:
            return np.empty(0, dtype=np.int64)
        blocks = np.concatenate([np.arange(first, first + count) for first, count in frame.runs])
        status = state.store.status[blocks]
        if having(status, BlockStatus.ABSENT, BlockStatus.FROZEN).any():
            raise ProtocolError(f"{node} asked {state.node} for blocks that it does not own: {frame.runs}")
        told = state.acknowledged.told[blocks] >= state.store.versions[blocks] if state.acknowledged.guards else True
        return blocks if (having(status, BlockStatus.PRIMARY) & told).all() else None

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _pull(self, node: NodeId, frame: Frame, data: list[Raw]) -> None:
        blocks = self._blocks(node, frame)
        if blocks is None or self._state.outbox.backlog(node) > BACKLOG_BYTES:  # it asks for more than it reads
            self._hold(node, frame, data)
        elif (asked := frame.of(PullMeta)).states:
            self._send_states(node, blocks, asked)
        else:
            self._mode.answer_pull(node, frame, blocks)

    def _send_states(self, node: NodeId, blocks: NDArray[np.int64], asked: PullMeta) -> None:
        state = self._state
        for run in state.store.alike(np.unique(blocks), state.store.versions):
            for segment in state.store.segments(run):
                states = state.store.states(segment)
                meta = SnapshotMeta(
                    runs=(segment,),
                    state=tuple(states),
                    dtypes=tuple(array.dtype.name for array in states.values()),
                    counts=tuple(state.store.counts[segment[0] : sum(segment)].tolist()),
                    request=asked.request,
                )
                image = [] if asked.numbers else [part.copy() for part in state.store.image(segment)]
                state.outbox.send(node, state.frame(meta, int(state.store.versions[segment[0]])), image)

    def _load_states(self, node: NodeId, frame: Frame, data: list[Raw]) -> None:
        state = self._state
        blocks = self._blocks(node, frame)
        if blocks is None:
            self._hold(node, frame, data)
            return
        run, load = frame.runs[0], frame.of(SnapshotMeta)
        names = tuple(state.store.states((run[0], 1)))
        if len(frame.runs) != 1 or not state.store.has_one_treatment(run) or load.state != names:
            key = state.store.tensor(run[0]).name
            raise ProtocolError(
                f"key {key}: the state to load has {list(load.state)} for blocks {frame.runs}, "
                f"but the optimizer has {list(names)}: load what was saved with the same optimizer"
            )
        if state.snapshot is not None:
            state.snapshot.before_update(run)
        state.store.load_states(run, data[0], load.counts)
        for follower, source in state.sources.items():
            source.forget(run)
            state.acknowledged.forget(follower, np.arange(run[0], sum(run)))
        state.changed.notify_all()

    def _init(self, node: NodeId, frame: Frame, data: list[Raw]) -> None:
        state, given = self._state, False
        for run, raw in zip(frame.runs, data, strict=True):
            status = state.store.status[run[0] : sum(run)].copy()
            for low, high in stretches(status):
                part = run[0] + low, high - low
                piece = state.store.cut(run, raw, low, high)
                if status[low] == BlockStatus.EMPTY:
                    self._first_values(part, piece, frame.version)
                    given = True
                elif status[low] == BlockStatus.FOLLOWER:
                    meta = InitMeta(runs=(part,))
                    self._hold(node, Frame(meta, frame.configuration, frame.version), [piece])
                elif (
                    status[low] != BlockStatus.PRIMARY
                ):  # a primary has values, restored or from an earlier INIT: they stay
                    raise ProtocolError(
                        f"{node} gave {state.node} first values of blocks {part}, which it does not own"
                    )
        if given:  # else what is held here would be judged again, and hold itself, without end
            state.retry()

    def _first_values(self, run: Run, raw: Raw, version: int) -> None:
        store = self._state.store
        store.write_values(run, raw)
        store.init_states(run)
        store.versions[run[0] : sum(run)] = version
        store.status[run[0] : sum(run)] = BlockStatus.PRIMARY


def _absent(frame: Frame) -> tuple[Run, ...]:
    """Return the blocks that a frame says nothing is pushed for."""
    return frame.meta.absent if isinstance(frame.meta, PushMeta) else ()
