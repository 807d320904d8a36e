"""PUSH: contributions are judged by `phases`, gathered, applied to the store, and answered by VALUE."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.aggregate import Share
from elastic_ps.server.memory import Array
from elastic_ps.server.phases import Given, Outcome, Part, due, outcome, parts
from elastic_ps.server.room import Room
from elastic_ps.server.segments import joined, stretches
from elastic_ps.transport.frames import Frame, Kind, Reason

log = logging.getLogger(__name__)

Raw = NDArray[np.uint8]
NOTHING: Raw = np.empty(0, dtype=np.uint8)
_REPORT_AT = 500  # ledger entries that are not left to the next turn of the reporter


@dataclass(frozen=True)
class Piece:
    """One run of a push."""

    run: Run
    given: Given
    data: Raw | None


class Updates:
    """See the module. Called under the room's lock.

    Args:
        room: the server's.
        switch: puts the prepared configuration in force.
        hold: keeps a part of a push until something changes.
    """

    def __init__(self, room: Room, switch: Callable[[], None], hold: Callable[[NodeId, Frame, Raw], None]):
        self._room = room
        self._switch = switch
        self._keep_waiting = hold
        self._hyper: Hyper | None = None

    # ---- PUSH --------------------------------------------------------------------------------------------------------

    def push(self, node: NodeId, frame: Frame, data: Raw) -> None:
        """A push of the configuration in force, by a worker of its roster."""
        room = self._room
        rank = room.gathering.workers.index(node)
        kept: list[Run] = []
        answer: list[NDArray[np.int64]] = []
        for piece in self._pieces(frame, data):
            first, count = piece.run
            window = slice(first, first + count)
            judged = parts(room.store.status[window], room.store.versions[window], frame.version)
            for low, high in stretches(judged):
                raw = room.store.cut(piece.run, piece.data, low, high) if piece.data is not None else None
                part = Piece((first + low, high - low), piece.given, raw)
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
            room.send_values(node, np.concatenate(answer))

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

    def _hold(self, node: NodeId, frame: Frame, piece: Piece) -> None:
        meta = {name: value for name, value in frame.meta.items() if name not in ("runs", "absent")}
        meta["absent" if piece.data is None else "runs"] = [list(piece.run)]
        part = Frame(frame.kind, frame.configuration, frame.version, frame.samples, meta)
        self._keep_waiting(node, part, piece.data if piece.data is not None else NOTHING)

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
            self._room.refuse(worker, Reason.MISMATCH, detail)

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
        self._tell_shadows(frame, runs, payload)
        if pushed:
            shares = list(zip(room.gathering.workers, room.gathering.shares, strict=True))
            room.ledger.append(room.standing.number, version, joined(pushed), shares)
            if room.ledger.waiting > _REPORT_AT:
                room.control.report_soon()
        for source in room.sources.values():
            source.stepped(version + 1)
        if room.snapshot is not None or room.sources:
            room.changed.notify_all()
        if due(room.standing, room.store.versions[room.owned()]):
            self._switch()
        elif room.held:
            room.retry()

    def _tell_shadows(self, frame: Frame, runs: list[Run], payload: list[Raw]) -> None:
        room = self._room
        shadows = [node for node in room.subscriptions if node not in room.gathering.workers]
        listening = [node for node in shadows if room.outbox.is_connected(node)]
        copies = [piece.copy() for piece in payload] if listening else []
        for node in listening:
            room.outbox.send(node, frame, copies)
        for subscription in room.subscriptions.values():
            for run in runs:
                subscription.sent(run)
