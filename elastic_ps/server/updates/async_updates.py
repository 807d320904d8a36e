"""In an `async` or `ssp` job each PUSH is an update of its own, made at once."""

import logging
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run, members
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS
from elastic_ps.core.segments import has_any, joined
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.optimizers.gradient_sum import Contribution, GradientSum
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.phases import BlockStatus, BlockVerdict, Bytes, having, parts
from elastic_ps.server.state.gathering import Share, aggregated
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.server.updates.intake import Intake, Piece
from elastic_ps.transport.frame_kinds import Reason
from elastic_ps.transport.frame_metas import PushMeta, ValueMeta
from elastic_ps.transport.frames import Frame

log = logging.getLogger(__name__)


@dataclass
class _Push:
    """A `_Push` is a push that is being applied.

    Attributes:
        batch: the batch that its blocks take, once each.
        samples: how many there are behind it.
        hyper: the optimizer's values that it is applied with.
        shares: the pusher's share of the data.
        taken: runs that have it now.
        updated: the taken runs that were updated, by the version that they had.
        refused: why blocks could not take it.
    """

    batch: BatchId
    samples: int
    hyper: Hyper | None
    shares: list[tuple[NodeId, Share]]
    taken: list[Run] = field(default_factory=list)
    updated: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    refused: list[str] = field(default_factory=list)


class AsyncUpdates:
    """`AsyncUpdates` applies each push as soon as it comes. Called under the state's lock.

    Args:
        state: the server's.
        intake: takes pushes apart.
    """

    def __init__(self, state: ServerState, intake: Intake):
        self._state = state
        self._intake = intake
        self._chiefs: dict[int, Hyper] = {}  # by store
        self._untold: list[
            tuple[NodeId, NDArray[np.int64], int]
        ] = []  # answers that wait: blocks, and the version asked

    def take_push(self, node: NodeId, frame: Frame, data: list[Contribution]) -> None:
        """See `PushMode.take_push`: each is an update of its own."""
        shares = [(node, Share(frame.samples, frame.of(PushMeta).slice))]
        push = _Push(self._batch(node, frame), frame.samples, self._hyper(node, frame), shares)
        for part, piece in self._intake.parts(node, frame, data, lambda run: self._judge(run, push.batch)):
            if part is BlockVerdict.KEEP:
                self._apply(piece, push)
            else:
                push.taken.append(piece.run)
        self._state.send_records(shares)
        self._record(node, frame, push)
        if push.taken:
            self._send_values(node, np.fromiter(members(joined(push.taken)), np.int64), frame.version + 1)
        if push.refused:
            detail = "; ".join(dict.fromkeys(push.refused))
            log.error("refused a push of %s: %s", node, detail)
            self._state.refuse(node, Reason.MISMATCH, detail)

    def answer_pull(self, node: NodeId, frame: Frame, blocks: NDArray[np.int64]) -> None:
        """See `PushMode.answer_pull`: under the version that the worker asked for."""
        self._send_values(node, np.unique(blocks), frame.version)

    def begin_subscription(self, node: NodeId) -> None:
        """See `PushMode.begin_subscription`: nothing, since a joiner that could not know of the job's mode yet pulls
        later.
        """

    def tell(self) -> None:
        """See `PushMode.tell`: who owns the blocks that have left meanwhile is asked for them again, and answers."""
        waiting, self._untold = self._untold, []
        for node, blocks, version in waiting:
            mine = blocks[having(self._state.store.status[blocks], BlockStatus.PRIMARY)]
            if len(mine) and node not in self._state.standing.dead:
                self._send_values(node, mine, version)

    # ---- judgement ---------------------------------------------------------------------------------------------------

    def _batch(self, node: NodeId, frame: Frame) -> BatchId:
        batch = frame.of(PushMeta).batch
        if batch is None:
            raise ProtocolError(f"{node} pushed without a batch in a job that is {self._state.data.consistency}")
        return BatchId(*batch)

    def _hyper(self, node: NodeId, frame: Frame) -> Hyper | None:
        """Return the chief's latest values; before the chief has pushed for the first time, the pusher's own."""
        own = frame.of(PushMeta).hyper
        if not frame.runs:
            return own
        store = self._state.store.tensor(frame.runs[0][0]).store  # an exchange pushes keys of one
        if own is not None and node == self._state.gathering.workers[0]:
            self._chiefs[store] = own
        return self._chiefs.get(store, own)

    def _judge(self, run: Run, batch: BatchId) -> Bytes:
        store = self._state.store
        taken = store.applied.has(batch, run)
        return parts(store.status[run[0] : sum(run)], ~taken, taken)

    # ---- updates -----------------------------------------------------------------------------------------------------

    def _apply(self, piece: Piece, push: _Push) -> None:
        state, store = self._state, self._state.store
        first = piece.run[0]
        for segment in store.segments(piece.run, store.versions, store.counts, *state.followed()):
            aggregate: GradientSum | Rows | None = None
            if piece.data is not None:
                if refusal := self._refusal(segment[0], push.hyper):
                    push.refused.append(refusal)
                    continue
                gradient = store.part(piece.run, piece.data, segment[0] - first, sum(segment) - first)
                aggregate = aggregated(store, segment, [gradient], [push.samples], push.hyper, state.data)
                push.updated[int(store.versions[segment[0]])].append(segment)
            state.apply_update(segment, aggregate, push.hyper, push.batch, push.shares)
            push.taken.append(segment)

    def _refusal(self, block: int, hyper: Hyper | None) -> str:
        store = self._state.store
        treatment = store.treatment(block)
        if treatment.rule is None and not treatment.auxiliary and not treatment.refusal:
            return (
                f"key {store.tensor(block).name}: a job that is {self._state.data.consistency} needs "
                f"{OPTIMIZER_ON_SERVERS} to apply each push with: call set_optimizer before the first push"
            )
        return store.refusal(block, hyper)

    def _record(self, node: NodeId, frame: Frame, push: _Push) -> None:
        """Tell the ledger and whoever waits for updates."""
        state = self._state
        for version, updated in sorted(push.updated.items()):
            state.write_down(version, updated, push.shares)
        if push.taken:
            state.stepped(max(push.updated, default=-1) + 1, len(state.gathering.workers))

    def _send_values(self, node: NodeId, blocks: NDArray[np.int64], version: int) -> None:
        """Send copies of values, once followers have them: the pushes of others change the blocks meanwhile."""
        state = self._state
        if state.acknowledged.guards and has_any(state.acknowledged.told[blocks] < state.store.versions[blocks]):
            self._untold.append((node, blocks, version))
            return
        runs = list(state.store.alike(blocks))
        pieces = [piece.copy() for run in runs for piece in state.store.values.pieces(run)]
        meta = ValueMeta(runs=tuple(runs), updates=state.store.updates(blocks))
        state.outbox.send(node, state.frame(meta, version), pieces)
