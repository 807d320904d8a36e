"""The workers' frames: PUSH, PULL, INIT, SUBSCRIBE. Judged by `phases`, applied to the store, answered by VALUE."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.aggregate import Share
from elastic_ps.server.follow import Subscription
from elastic_ps.server.phases import Given, Outcome, Part, Status, Verdict, judge, outcome, parts
from elastic_ps.server.room import Held, Room
from elastic_ps.server.store import Array, joined, stretches
from elastic_ps.transport.frames import Frame, Kind, Reason

log = logging.getLogger(__name__)

Raw = NDArray[np.uint8]
_NOTHING: Raw = np.empty(0, dtype=np.uint8)
_REPORT_AT = 500  # ledger entries that are not left to the next turn of the reporter


@dataclass(frozen=True)
class Piece:
    """One run of a push."""

    run: Run
    given: Given
    data: Raw | None


class Exchange:
    """See the module. Every public method takes the room's lock.

    Args:
        room: the server's.
        switch: puts the prepared configuration in force; called under the lock.
    """

    def __init__(self, room: Room, switch: Callable[[], None]):
        self._room = room
        self._switch = switch
        self._hyper: Hyper | None = None

    # ---- frames ----------------------------------------------------------------------------------------------------

    def arrived(self, node: NodeId, frame: Frame, data: Raw) -> None:
        """A worker's frame is here; `data` is its payload, owned by this server now.

        Raises:
            ProtocolError: a frame that no correct worker sends.
        """
        serve = {Kind.PUSH: self._push, Kind.PULL: self._pull, Kind.INIT: self._init, Kind.SUBSCRIBE: self._subscribe}
        if frame.kind is Kind.NOTICE:
            self._notice(frame)
        elif frame.kind in serve:
            with self._room.changed:
                self._judged(node, frame, data, serve[frame.kind])
        else:
            raise ProtocolError(f"a worker sent {frame.kind.name}")

    def payload_bytes(self, frame: Frame) -> int:
        """Bytes that a worker's frame must bring, by the model.

        Raises:
            ProtocolError: blocks that the model does not have.
        """
        with self._room.changed:
            return self._room.store.span(frame.runs) if frame.kind in (Kind.PUSH, Kind.INIT) else 0

    def _notice(self, frame: Frame) -> None:
        with self._room.changed:
            if self._room.standing.decided(frame.configuration):
                self._switch()

    def _judged(self, node: NodeId, frame: Frame, data: Raw, serve: Callable[[NodeId, Frame, Raw], None]) -> None:
        room = self._room
        verdict = judge(room.standing, frame.configuration, node, reads=frame.kind in (Kind.PULL, Kind.SUBSCRIBE))
        if verdict is Verdict.SWITCH:
            self._switch()
            verdict = judge(room.standing, frame.configuration, node, reads=frame.kind in (Kind.PULL, Kind.SUBSCRIBE))
        if verdict is Verdict.STALE:
            self._refuse(node, Reason.STALE, f"this is configuration {room.standing.number}")
        elif verdict is Verdict.UNKNOWN:
            self._refuse(node, Reason.UNKNOWN, f"{node} is not in configuration {room.standing.number}")
        elif verdict is Verdict.HOLD:
            key = (node, frame.kind, str(frame.meta.get("runs")), str(frame.meta.get("absent")))
            room.hold(Held(lambda: self._judged(node, frame, data, serve), node, key))
        else:
            serve(node, frame, data)

    def _refuse(self, node: NodeId, reason: Reason, detail: str) -> None:
        number = list(self._room.standing.number)
        self._room.outbox.send(
            node, self._room.frame(Kind.REFUSED, reason=reason.value, detail=detail, configuration=number)
        )

    # ---- PUSH --------------------------------------------------------------------------------------------------------

    def _push(self, node: NodeId, frame: Frame, data: Raw) -> None:
        room = self._room
        rank = room.gathering.workers.index(node)
        kept: list[Run] = []
        answer: list[NDArray[np.int64]] = []
        for piece in self._pieces(frame, data):
            first, count = piece.run
            window = slice(first, first + count)
            judged = parts(room.store.status[window], room.store.versions[window], frame.version)
            for low, high in stretches(judged):
                part = Piece((first + low, high - low), piece.given, self._cut(piece, low, high))
                if judged[low] == Part.KEEP:
                    room.gathering.keep(rank, part.run, part.given, part.data)
                    kept.append(part.run)
                elif judged[low] == Part.ANSWER:
                    answer.append(np.arange(first + low, first + high))
                elif judged[low] == Part.HOLD:
                    self._hold(node, frame, part)
                else:
                    raise ProtocolError(f"{node} pushed blocks {part.run} to {room.node}, who does not own them")
        if kept:
            self._note(rank, frame)
            self._complete(kept)
        if answer:
            self.send_values(node, np.concatenate(answer))

    def _pieces(self, frame: Frame, data: Raw) -> list[Piece]:
        pieces: list[Piece] = []
        start = 0
        for run in frame.runs:
            size = self._room.store.span([run])
            pieces.append(Piece(run, Given.GRADIENT, data[start : start + size]))
            start += size
        given = Given.EMPTY if frame.meta.get("empty") else Given.ABSENT
        absent = [(first, count) for first, count in frame.meta.get("absent", ())]
        self._room.store.span(absent)
        return pieces + [Piece(run, given, None) for run in absent]

    def _cut(self, piece: Piece, low: int, high: int) -> Raw | None:
        if piece.data is None:
            return None
        first, count = piece.run
        positions = self._room.store.positions
        start = int(positions[first + low] - positions[first])
        stop = int(positions[first + high] - positions[first]) if high < count else piece.data.nbytes
        return piece.data[start:stop]

    def _hold(self, node: NodeId, frame: Frame, piece: Piece) -> None:
        meta = {name: value for name, value in frame.meta.items() if name not in ("runs", "absent")}
        meta["absent" if piece.data is None else "runs"] = [list(piece.run)]
        part = Frame(frame.kind, frame.configuration, frame.version, frame.samples, meta)
        data = piece.data if piece.data is not None else _NOTHING
        self._room.hold(Held(lambda: self._judged(node, part, data, self._push), node, (node, Kind.PUSH, piece.run)))

    def _note(self, rank: int, frame: Frame) -> None:
        """Remember what a push says of its step."""
        span = frame.meta.get("slice")
        self._room.gathering.shares[rank] = Share(frame.samples, tuple(span) if span else None)
        if rank == 0 and frame.meta.get("hyper"):
            self._hyper = Hyper.from_dict(frame.meta["hyper"])

    # ---- updates -----------------------------------------------------------------------------------------------------

    def _complete(self, kept: Sequence[Run]) -> None:
        """Update what every worker has contributed to, and answer."""
        room = self._room
        updated: list[Run] = []
        pushed: list[Run] = []
        refused: list[str] = []
        version = 0
        for run in kept:
            for ready in room.gathering.complete(run):
                version = int(room.store.versions[ready[0]])
                for segment in room.store.segments(
                    ready, room.store.counts, room.gathering.given, room.gathering.source
                ):
                    self._update(segment, updated, pushed, refused)
                room.gathering.drop(ready)
        if refused:
            self._refuse_all("; ".join(dict.fromkeys(refused)))
        if updated:
            self._updated(updated, pushed, version)

    def _update(self, segment: Run, updated: list[Run], pushed: list[Run], refused: list[str]) -> None:
        room = self._room
        given = room.gathering.given[:, segment[0]].tolist()
        result = outcome(given)
        treatment = room.store.treatment(segment[0])
        if result is Outcome.MISMATCH:
            refused.append(self._mismatch(segment, given))
            return
        if result is Outcome.UPDATE and treatment.refusal:
            refused.append(treatment.refusal)
            return
        if result is Outcome.UPDATE and treatment.rule is not None and self._hyper is None:
            refused.append(f"key {room.store.tensor(segment[0]).name}: the chief's push has no hyperparameters")
            return
        aggregate: Array | None = None
        if result is Outcome.UPDATE:
            aggregate = room.gathering.combine(
                segment, room.store.positions, treatment.dtype, treatment.auxiliary, room.data
            )
            pushed.append(segment)
        if room.snapshot is not None:
            room.snapshot.before_update(segment)
        for source in room.sources.values():
            source.record(segment, aggregate, self._hyper)
        room.store.update(segment, aggregate, self._hyper)
        updated.append(segment)

    def _mismatch(self, segment: Run, given: list[int]) -> str:
        workers = self._room.gathering.workers
        names = dict.fromkeys(self._room.store.tensor(block).name for block in range(segment[0], sum(segment)))
        pushing = [f"{rank} ({workers[rank]})" for rank, kind in enumerate(given) if kind == Given.GRADIENT]
        lacking = [f"{rank} ({workers[rank]})" for rank, kind in enumerate(given) if kind == Given.ABSENT]
        return (
            f"key {', '.join(names)}: pushed by rank {', '.join(pushing)} but not by rank {', '.join(lacking)}; "
            "every worker must push the same keys in a step"
        )

    def _refuse_all(self, detail: str) -> None:
        log.error("refused: %s", detail)
        for worker in self._room.gathering.workers:
            self._refuse(worker, Reason.MISMATCH, detail)

    def _updated(self, updated: list[Run], pushed: list[Run], version: int) -> None:
        """Tell the workers, the shadows and the ledger that `updated` went from `version` to the next."""
        room = self._room
        runs = joined(updated)
        frame = room.frame(Kind.VALUE, version + 1, runs)
        payload = [piece for run in runs for piece in room.store.pieces(run)]
        for worker in room.gathering.workers:
            # Not copied: nobody updates these blocks again before this worker has pushed for them again, which it
            # does only after it has their values.
            room.outbox.send(worker, frame, payload)
        shadows = [sub for sub in room.subscriptions.values() if sub.node not in room.gathering.workers]
        if shadows:
            copies = [piece.copy() for piece in payload]
            for shadow in shadows:
                room.outbox.send(shadow.node, frame, copies)
                for run in runs:
                    shadow.sent(run)
        if pushed:
            shares = list(zip(room.gathering.workers, room.gathering.shares, strict=True))
            room.ledger.append(room.standing.number, version, joined(pushed), shares)
            if room.ledger.waiting > _REPORT_AT:
                room.control.report_soon()
        for source in room.sources.values():
            source.stepped(version + 1)
        if room.snapshot is not None or room.sources:
            room.changed.notify_all()
        if room.standing.due(room.store.versions[room.owned()]):
            self._switch()
        elif room.held:
            room.retry()

    # ---- PULL, INIT, SUBSCRIBE ---------------------------------------------------------------------------------------

    def send_values(self, node: NodeId, blocks: NDArray[np.int64]) -> None:
        """Send a worker the values of these blocks, one frame for each version. Called under the lock."""
        room = self._room
        member = node in room.gathering.workers
        versions = room.store.versions[blocks]
        for version in np.unique(versions).tolist():
            runs = list(room.store.alike(np.unique(blocks[versions == version])))
            pieces: list[Any] = [piece for run in runs for piece in room.store.pieces(run)]
            payload = pieces if member else [piece.copy() for piece in pieces]
            room.outbox.send(node, room.frame(Kind.VALUE, version, runs), payload)

    def _pull(self, node: NodeId, frame: Frame, _data: Raw) -> None:
        room = self._room
        room.store.span(frame.runs)
        blocks = np.concatenate([np.arange(first, first + count) for first, count in frame.runs])
        status = room.store.status[blocks]
        if ((status == Status.ABSENT) | (status == Status.FROZEN)).any():
            raise ProtocolError(f"{node} pulled blocks from {room.node}, who does not own them: {frame.runs}")
        if (status != Status.PRIMARY).any():
            key = (node, Kind.PULL, str(frame.runs))
            room.hold(Held(lambda: self._judged(node, frame, _data, self._pull), node, key))
            return
        self.send_values(node, blocks)

    def _init(self, node: NodeId, frame: Frame, data: Raw) -> None:
        room = self._room
        start = 0
        for run in frame.runs:
            size = room.store.span([run])
            status = room.store.status[run[0] : sum(run)]
            for low, high in stretches(status):
                part = Piece((run[0] + low, high - low), Given.GRADIENT, None)
                raw = self._cut(Piece(run, Given.GRADIENT, data[start : start + size]), low, high)
                if status[low] == Status.EMPTY and raw is not None:
                    self._first_values(part.run, raw, frame.version)
                elif status[low] == Status.FOLLOWER and raw is not None:
                    self._hold_init(node, frame, part.run, raw)
                elif status[low] != Status.PRIMARY:  # a primary has values already, restored or from an earlier INIT
                    raise ProtocolError(
                        f"{node} gave first values of blocks {part.run} to {room.node}, not their owner"
                    )
            start += size
        room.retry()

    def _first_values(self, run: Run, raw: Raw, version: int) -> None:
        store = self._room.store
        store.write(run, raw)
        store.init_states(run)
        store.versions[run[0] : sum(run)] = version
        store.status[run[0] : sum(run)] = Status.PRIMARY

    def _hold_init(self, node: NodeId, frame: Frame, run: Run, raw: Raw) -> None:
        part = Frame(Kind.INIT, frame.configuration, frame.version, meta={"runs": [list(run)]})
        self._room.hold(Held(lambda: self._judged(node, part, raw, self._init), node, (node, Kind.INIT, run)))

    def resubscribe(self, node: NodeId) -> None:
        """A shadow has connected again: what it was sent before may be lost. Called under the lock."""
        self._subscribe(node, Frame(Kind.SUBSCRIBE), _NOTHING)

    def _subscribe(self, node: NodeId, _frame: Frame, _data: Raw) -> None:
        room = self._room
        room.subscriptions[node] = Subscription(node, room.store, room.outbox)
        room.changed.notify_all()
