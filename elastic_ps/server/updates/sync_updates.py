"""In a `sync` job contributions are gathered until all have come, then applied to the store and answered by VALUE."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run, members, runs
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array, runs_of
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.optimizers.gradient_sum import Contribution, GradientSum
from elastic_ps.server.copying.shadows import Subscription
from elastic_ps.server.phases import BlockStatus, BlockVerdict, Bytes, UpdateOutcome, due, having, outcome, parts
from elastic_ps.server.state.gathering import Share
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.server.updates.gradient_squares import scaled, squares
from elastic_ps.server.updates.intake import Intake
from elastic_ps.server.updates.mismatch import Refusal, mismatch
from elastic_ps.server.updates.updated_values import UpdatedValues
from elastic_ps.transport.frame_kinds import Reason
from elastic_ps.transport.frame_metas import FactorMeta, PushMeta, SquaresMeta
from elastic_ps.transport.frames import Frame

log = logging.getLogger(__name__)

_GROUP_BYTES, _YIELD_SECONDS = 64 << 20, 0.001
"""By one FACTOR all of a server's blocks are updated: so many bytes of them, then others have the lock for so long."""


@dataclass
class _Closed:
    """`_Closed` lists updates that are complete.

    Attributes:
        version: the version that their blocks had.
        shares: the workers' parts of it, in rank order.
        updated: blocks that have the next one.
        pushed: the updated runs whose keys were pushed.
        rows: the updated runs of which only some rows have changed, with the rows' numbers.
        refused: others, which could not be updated.
        waiting: complete, but for the factor on their gradients, with each block's sum of squares.
    """

    version: int
    shares: list[tuple[NodeId, Share]]
    updated: list[Run] = field(default_factory=list)
    pushed: list[Run] = field(default_factory=list)
    rows: list[tuple[Run, NDArray[np.int64]]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    waiting: list[tuple[Run, list[float]]] = field(default_factory=list)


class SyncUpdates:
    """`SyncUpdates` applies the pushes of all workers to a block at once. Called under the state's lock.

    Args:
        state: the server's.
        switch: puts the prepared configuration in force.
        intake: takes pushes apart.
    """

    def __init__(self, state: ServerState, switch: Callable[[], None], intake: Intake):
        self._state = state
        self._switch = switch
        self._intake = intake
        self._hyper: Hyper | None = None
        self._scaled: set[int] = set()  # key stores of which some worker has scaled gradients
        self.postpones = False  # FACTORs are taken note of, and `go_on` comes
        self._factored: int | None = None  # the version whose updates are postponed
        self._values = UpdatedValues(state)

    # ---- PUSH --------------------------------------------------------------------------------------------------------

    def take_push(self, node: NodeId, frame: Frame, data: list[Contribution]) -> None:
        """See `PushMode.take_push`: it is gathered until every worker has pushed."""
        state = self._state
        state.subscriptions.pop(node, None)  # it is a member, and up to date
        rank = state.gathering.workers.index(node)
        self._note(rank, frame)
        kept: list[Run] = []
        answer: list[NDArray[np.int64]] = []
        for part, piece in self._intake.parts(node, frame, data, lambda run: self._judge(run, frame.version)):
            if part is BlockVerdict.KEEP:
                state.gathering.keep(rank, piece.run, piece.given, piece.data)
                kept.append(piece.run)
            else:
                answer.append(np.arange(piece.run[0], sum(piece.run)))
        if answer:  # before what may be the clock's last update: it puts another configuration in force
            self._values.send(node, np.concatenate(answer))
        if frame.of(PushMeta).empty:
            self._complete(self._at(frame.version))  # also blocks that the worker had not heard of, and does not name
        elif kept:
            self._complete(kept)

    def take_factor(self, node: NodeId, frame: Frame) -> None:
        """Apply the gradients that have waited for the factor on all gradients of their version.

        Args:
            node: the worker who has decided it.
            frame: the FACTOR, of the configuration in force.

        Raises:
            ProtocolError: it is not the chief.
        """
        state = self._state
        if node != state.gathering.workers[0]:
            raise ProtocolError(f"{node} sent a FACTOR, and is not the chief, {state.gathering.workers[0]}")
        state.store.decided.note(frame.version, frame.of(FactorMeta).factor)
        if self.postpones:
            self._factored = frame.version
        else:
            self._complete(self._at(frame.version))

    def go_on(self) -> None:
        """Make the updates that were postponed, a group of blocks at a time. Not called under the lock."""
        low: int | None = 0 if self._factored is not None else None
        while low is not None:
            with self._state.changed:
                low = self._complete_group(low)
            if low is not None:
                time.sleep(_YIELD_SECONDS)

    def _complete_group(self, low: int) -> int | None:
        """Update the first blocks from `low` on whose factor has come; return where the rest begins, None: nowhere.

        What has come between the groups is no matter: of a worker's death or another configuration blocks wait again,
        and the factor stays known.
        """
        store, gathering = self._state.store, self._state.gathering
        if self._factored is None:  # another thread has gone on
            return None
        ready: list[int] = []
        size = 0
        for first, count in self._at(self._factored):
            if (rest := first + count - max(first, low)) <= 0:
                continue
            run = max(first, low), rest
            gathering.settle(run, self._factored)
            for block in members(gathering.complete(run)):
                size += int(store.extents[block])
                if ready and size > _GROUP_BYTES:
                    self._complete(list(runs(ready)))
                    return block
                ready.append(block)
        self._complete(list(runs(ready)))
        self._factored = None
        return None

    def answer_pull(self, node: NodeId, frame: Frame, blocks: NDArray[np.int64]) -> None:
        """See `PushMode.answer_pull`: who asks for the next version of blocks has pushed this one."""
        gathering, versions = self._state.gathering, self._state.store.versions
        if node in gathering.workers and (versions[blocks] == frame.version - 1).any():
            rank = gathering.workers.index(node)
            if not gathering.has_come_to(rank, frame.version):
                self._take_in(rank, Share(version=frame.version))
        self._values.send(node, blocks)

    def begin_subscription(self, node: NodeId) -> None:
        """See `PushMode.begin_subscription`: now, and with each update."""
        state = self._state
        state.subscriptions[node] = Subscription(node, state.store, state.outbox, state.may_tell)
        state.changed.notify_all()

    def _judge(self, run: Run, version: int) -> Bytes:
        store = self._state.store
        versions = store.versions[run[0] : sum(run)]
        known = (versions > version) & self._state.may_tell_of(run)
        return parts(store.status[run[0] : sum(run)], versions == version, known)

    def _note(self, rank: int, frame: Frame) -> None:
        """Remember what a push says of its step."""
        push = frame.of(PushMeta)
        self._take_in(rank, Share(frame.samples, push.slice, frame.version, push.empty))
        if push.skip_overflow and frame.runs:
            self._scaled.add(self._state.store.tensor(frame.runs[0][0]).store)  # an exchange pushes keys of one
        if rank == 0 and push.hyper is not None:
            self._hyper = push.hyper

    def _take_in(self, rank: int, share: Share) -> None:
        """Note a worker's part of a version, which says that it is past those before."""
        store = self._state.store
        if self._state.gathering.note(rank, share):
            versions = np.unique(store.versions[having(store.status, BlockStatus.PRIMARY)])
            for version in versions[versions < share.version].tolist():  # never more than there are blocks
                self._complete(self._at(version))

    def _at(self, version: int) -> list[Run]:
        """Return the blocks that are this server's, and have a version."""
        store = self._state.store
        return runs_of(having(store.status, BlockStatus.PRIMARY) & (store.versions == version))

    # ---- updates -----------------------------------------------------------------------------------------------------

    def _complete(self, kept: Sequence[Run]) -> None:
        """Update what every worker has contributed to, of blocks of one version, and answer."""
        state, gathering = self._state, self._state.gathering
        if not kept:
            return
        version = int(state.store.versions[kept[0][0]])
        closed = _Closed(version, list(zip(gathering.workers, gathering.shares(version), strict=True)))
        for run in kept:
            gathering.settle(run, version)
            for ready in gathering.complete(run):
                alike: list[Array] = [state.store.counts, gathering.given, gathering.source, *state.followed()]
                waiting = len(closed.waiting)
                for segment in state.store.segments(ready, *alike):
                    self._update(segment, closed)
                self._drop(ready, [run for run, _ in closed.waiting[waiting:]])
        state.send_records(closed.shares)
        if closed.waiting:
            self._ask_factor(closed)
        if closed.refused:
            self._refuse(closed.refused)
        if closed.updated:
            self._updated(closed)

    def _update(self, segment: Run, closed: _Closed) -> None:
        state = self._state
        given = state.gathering.given[:, segment[0]].tolist()
        result = outcome(given)
        if result is UpdateOutcome.MISMATCH:
            closed.refused.append(self._mismatch(segment, given))
            return
        aggregate: GradientSum | Rows | None = None
        hyper = self._hyper_of_all(segment)
        if result is UpdateOutcome.UPDATE:
            if refusal := state.store.refusal(segment[0], hyper):
                closed.refused.append(Refusal(refusal, state.gathering.workers))
                return
            samples = [share.samples for _, share in closed.shares]
            aggregate = state.gathering.combine(segment, samples, state.store, hyper, state.data)
            if hyper is not None and hyper.needs_norm and state.store.treatment(segment[0]).rule is not None:
                factor = state.store.decided.of(int(state.store.versions[segment[0]]))
                if factor is None:
                    closed.waiting.append((segment, squares(state.store, segment, aggregate)))
                    return
                hyper, aggregate = replace(hyper, factor=factor), scaled(aggregate, factor)
            closed.pushed.append(segment)
        state.apply_update(segment, aggregate, hyper, shares=closed.shares)
        closed.updated.append(segment)
        if isinstance(aggregate, Rows):
            closed.rows.append((segment, aggregate.numbers))

    def _hyper_of_all(self, segment: Run) -> Hyper | None:
        """Return the chief's values; a worker on a GPU may scale gradients where the chief, on a CPU, does not.

        Once heard that counts for good: all servers have to wait for a factor, or none, also those whom a worker that
        dies in a step has not told. If it dies in a step that is skipped, another server may have skipped it already.
        """
        hyper = self._hyper
        scales = self._state.store.tensor(segment[0]).store in self._scaled
        return replace(hyper, skip_overflow=True) if hyper is not None and scales else hyper

    def _drop(self, ready: Run, waiting: Sequence[Run]) -> None:
        """Forget the contributions to a run, but those that wait for the factor on them."""
        low = ready[0]
        for first, count in (*waiting, (sum(ready), 0)):
            if first > low:
                self._state.gathering.drop((low, first - low))
            low = first + count

    def _ask_factor(self, closed: _Closed) -> None:
        """Tell the chief the squares of what waits: with those of the other servers it decides the factor."""
        state = self._state
        runs, found = zip(*closed.waiting, strict=True)
        hyper = self._hyper_of_all(runs[0])
        assert hyper is not None, "it has said that they wait"
        meta = SquaresMeta(runs=runs, squares=tuple(chain.from_iterable(found)), hyper=hyper)
        state.outbox.send(state.gathering.workers[0], state.frame(meta, closed.version))

    def _mismatch(self, segment: Run, given: list[int]) -> Refusal:
        state, before = self._state, self._state.standing.before
        names = (state.store.tensor(block).name for block in range(segment[0], sum(segment)))
        return mismatch(names, given, state.gathering.workers, set(before.ranks) if before is not None else set())

    def _refuse(self, refused: Sequence[Refusal]) -> None:
        for detail in dict.fromkeys(refusal.detail for refusal in refused):
            log.error("refused pushes: %s", detail)
        for worker in self._state.gathering.workers:
            own = [refusal for refusal in refused if worker in refusal.workers]
            if own:
                apart = all(refusal.reason is Reason.APART for refusal in own)
                details = "; ".join(dict.fromkeys(refusal.detail for refusal in own))
                self._state.refuse(worker, Reason.APART if apart else Reason.MISMATCH, details)

    def _updated(self, closed: _Closed) -> None:
        """Tell the workers, the shadows and the ledger what has gone from its version to the next."""
        state, version = self._state, closed.version
        if not state.acknowledged.guards:
            self._values.send_updated(version + 1, closed.updated, closed.rows)
        if closed.pushed:
            state.write_down(version, closed.pushed, closed.shares)
        state.stepped(version + 1)
        if state.acknowledged.guards:
            self._values.withhold(closed.updated, closed.rows)
            self._values.tell()
        if due(state.standing, state.told_versions()):
            self._switch()
        elif state.held:
            state.retry()

    def tell(self) -> None:
        """See `PushMode.tell`."""
        self._values.tell()
