"""PUSH in a `sync` job: contributions are judged by `phases`, gathered, applied to the store, and answered by VALUE."""

import logging
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array, Raw, joined
from elastic_ps.server.aggregate import Share
from elastic_ps.server.contributions import Aggregate
from elastic_ps.server.follow import Subscription
from elastic_ps.server.intake import Intake
from elastic_ps.server.phases import Bytes, Given, Outcome, Part, due, outcome, parts
from elastic_ps.server.room import Room
from elastic_ps.transport.frames import Frame, Kind, Reason

log = logging.getLogger(__name__)


class Updates:
    """See the module. Called under the room's lock.

    Args:
        room: the server's.
        switch: puts the prepared configuration in force.
        intake: of pushes.
    """

    def __init__(self, room: Room, switch: Callable[[], None], intake: Intake):
        self._room = room
        self._switch = switch
        self._intake = intake
        self._hyper: Hyper | None = None

    # ---- PUSH --------------------------------------------------------------------------------------------------------

    def push(self, node: NodeId, frame: Frame, data: list[Raw]) -> None:
        """A push of the configuration in force, by a worker of its roster."""
        room = self._room
        rank = room.gathering.workers.index(node)
        kept: list[Run] = []
        answer: list[NDArray[np.int64]] = []
        for part, piece in self._intake.parts(node, frame, data, lambda run: self._judge(run, frame.version)):
            if part is Part.KEEP:
                room.gathering.keep(rank, piece.run, piece.given, piece.data)
                kept.append(piece.run)
            else:
                answer.append(np.arange(piece.run[0], sum(piece.run)))
        if kept:
            self._note(rank, frame)
            self._complete(kept)
        if answer:
            self._send_values(node, np.concatenate(answer))

    def pull(self, node: NodeId, _frame: Frame, blocks: NDArray[np.int64]) -> None:
        """Send a worker the values of these blocks, all of which are here."""
        self._send_values(node, blocks)

    def subscribe(self, node: NodeId) -> None:
        """A shadow gets every value: now, and with each update."""
        room = self._room
        room.subscriptions[node] = Subscription(node, room.store, room.outbox)
        room.changed.notify_all()

    def _judge(self, run: Run, version: int) -> Bytes:
        store = self._room.store
        versions = store.versions[run[0] : sum(run)]
        return parts(store.status[run[0] : sum(run)], versions == version, versions > version)

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
                alike: list[Array] = [room.store.counts, room.gathering.given, room.gathering.source, *room.followed()]
                for segment in room.store.segments(ready, *alike):
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
        aggregate: Aggregate | None = None
        if result is Outcome.UPDATE:
            if refusal := room.store.refusal(segment[0], self._hyper):
                refused.append(refusal)
                return
            aggregate = room.gathering.combine(segment, room.store.positions, treatment, room.data)
            pushed.append(segment)
        room.update(segment, aggregate, self._hyper)
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
        for cut in room.store.by_image(runs):
            frame = room.frame(Kind.VALUE, version + 1, cut)
            payload = [piece for run in cut for piece in room.store.pieces(run)]
            for worker in room.gathering.workers:
                # Not copied: nobody updates these blocks again before this worker has pushed for them again, which it
                # does only after it has their values.
                room.outbox.send(worker, frame, payload)
            self._tell_shadows(frame, cut, payload)
        if pushed:
            room.write_down(version, pushed, list(zip(room.gathering.workers, room.gathering.shares, strict=True)))
        room.stepped(version + 1)
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

    def _send_values(self, node: NodeId, blocks: NDArray[np.int64]) -> None:
        """One frame for each version.

        Copied, unlike those of an update: the worker may have them already by another connection, go on, and see them
        change under way.
        """
        room = self._room
        versions = room.store.versions[blocks]
        for version in np.unique(versions).tolist():
            runs = list(room.store.alike(np.unique(blocks[versions == version])))
            pieces = [piece.copy() for run in runs for piece in room.store.pieces(run)]
            room.outbox.send(node, room.frame(Kind.VALUE, version, runs), pieces)
