"""Writes checkpoints beside training, in a thread of their own (see `checkpoint`)."""

import json
import logging
from collections.abc import Callable

from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.server.checkpoints.files import Snapshot, Writer
from elastic_ps.server.node_state import Room
from elastic_ps.system import storage
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)


class _GivenUp(CheckpointError):
    """Nobody waits for this checkpoint any more: what there is of it is removed."""


class Saver:
    """Serves Save directives.

    Args:
        room: the server's.
        spawn: starts a named thread.
        ended: whether this server's part in the job is over.
    """

    def __init__(self, room: Room, spawn: Callable[[str, Callable[[], None]], object], ended: Callable[[], bool]):
        self._room = room
        self._spawn = spawn
        self._ended = ended
        self._last: tuple[str, str] | None = None  # folder and table of what was saved: asked again, answered again

    def save(self, clock: int, url: str) -> None:
        """Save every block at version `clock` into folder `url`; SAVED or LATE is answered when that is done.

        In a job that is async or ssp `clock` names the checkpoint: every block is saved at once, and none is LATE.
        """
        room = self._room
        with room.changed:
            if self._last is not None and self._last[0] == url:
                room.control.acknowledge(pb.SAVED, room.standing.number, clock, detail=self._last[1])
                return
            if room.snapshot is not None and room.snapshot.clock == clock:
                return
            snapshot = room.snapshot = Snapshot(room.store, clock, url, at_once=not room.data.is_sync)
            room.changed.notify_all()  # an older one is given up
        self._spawn("checkpoint", lambda: self._write(snapshot))

    def _write(self, snapshot: Snapshot) -> None:
        room = self._room
        name = f"{room.node}.bin"
        try:
            storage.make_folder(snapshot.url)
            with storage.writing(f"{snapshot.url}/{name}") as file:
                writer = Writer(file, name)
                while self._write_piece(snapshot, writer):
                    pass
            answer, written = writer.table(), True
        except _GivenUp:
            return
        except (StorageError, FileNotFoundError) as error:
            log.error("the checkpoint at version %d cannot be written: %s", snapshot.clock, error)  # noqa: TRY400
            answer, written = json.dumps({"error": f"{room.node} cannot write to {snapshot.url}: {error}"}), False
        with room.changed:
            # a checkpoint holds updates: were this server to die now, nobody else could tell the ledger of them
            room.ledger.after_kept(lambda: self._saved(snapshot, answer, written))
            room.control.report_soon()

    def _saved(self, snapshot: Snapshot, detail: str, written: bool) -> None:
        room = self._room
        if room.snapshot is snapshot:
            room.snapshot = None
            self._last = (snapshot.url, detail) if written else None
            room.control.acknowledge(pb.SAVED, room.standing.number, snapshot.clock, detail=detail)

    def _write_piece(self, snapshot: Snapshot, writer: Writer) -> bool:
        """Wait for a piece and write it; False when there is nothing more to write."""
        room = self._room

        def given_up() -> bool:
            return self._ended() or room.snapshot is not snapshot

        def complete() -> bool:
            return snapshot.is_complete(undecided=room.standing.prepared is not None)

        with room.changed:
            room.changed.wait_for(lambda: given_up() or snapshot.has_piece or complete() or snapshot.is_late())
            if given_up():
                raise _GivenUp("another one is written, or none any more")
            if snapshot.is_late():
                room.snapshot = None
                room.control.acknowledge(pb.LATE, room.standing.number, room.version)
                raise _GivenUp("it came too late")
            image = snapshot.next_piece()
        if image is not None:
            writer.write(image)
        return image is not None
