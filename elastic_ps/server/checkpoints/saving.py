"""A `Saver` writes checkpoints beside training, in a thread of their own (see `checkpoint_snapshot`)."""

import json
import logging
from collections.abc import Callable

from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.server.blocks.checkpoint_snapshot import CheckpointSnapshot
from elastic_ps.server.checkpoints.files import BlockFileWriter
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.system import storage
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)


class _GivenUp(CheckpointError):
    """Nobody waits for this checkpoint any more: what there is of it is removed."""


class Saver:
    """A `Saver` carries out Save directives.

    Args:
        state: the server's.
        spawn: starts a named thread.
        ended: whether this server's part in the job is over.
    """

    def __init__(
        self, state: ServerState, spawn: Callable[[str, Callable[[], None]], object], ended: Callable[[], bool]
    ):
        self._state = state
        self._spawn = spawn
        self._ended = ended
        self._last: tuple[str, str] | None = None  # folder and contents of what was saved: asked again, answered again
        self._given_up = ""

    def save(self, clock: int, url: str, given_up: str = "") -> None:
        """Save every block at version `clock` into folder `url`; SAVED or LATE is answered when that is done.

        In a job that is async or ssp `clock` names the checkpoint: every block is saved at once, and none is LATE.

        Args:
            clock: the version.
            url: of the folder.
            given_up: folder of an order that came to nothing. Where each machine has its own, nobody else clears it.
        """
        state = self._state
        with state.changed:
            if given_up and given_up != self._given_up:
                self._given_up = given_up
                self._spawn("take-back", lambda: storage.take_back(given_up, f"{state.node}.bin"))
            if self._last is not None and self._last[0] == url:
                state.control.acknowledge(pb.SAVED, state.standing.config_id, clock, detail=self._last[1])
                return
            if state.snapshot is not None and state.snapshot.url == url:
                return
            snapshot = state.snapshot = CheckpointSnapshot(state.store, clock, url, at_once=not state.data.is_sync)
            state.changed.notify_all()  # an older one is given up
        self._spawn("checkpoint", lambda: self._write(snapshot))

    def _write(self, snapshot: CheckpointSnapshot) -> None:
        state = self._state
        name = f"{state.node}.bin"
        try:
            self._await_piece(snapshot)  # whoever gives the order up before that, and gives it again, removes nothing
            storage.make_folder(snapshot.url)
            with storage.writing(f"{snapshot.url}/{name}") as file:
                writer = BlockFileWriter(file, name)
                while self._write_piece(snapshot, writer):
                    pass
            answer, written = writer.contents(snapshot.url), True
        except _GivenUp:
            return
        except (StorageError, FileNotFoundError) as error:
            log.error("the checkpoint at version %d cannot be written: %s", snapshot.clock, error)  # noqa: TRY400
            why = f"{state.node} cannot write to {snapshot.url}: {error}"
            answer, written = json.dumps({"url": snapshot.url, "error": why}), False
        with state.changed:
            # a checkpoint holds updates: were this server to die now, nobody else could tell the ledger of them
            state.ledger.after_kept(lambda: self._saved(snapshot, answer, written))
            state.control.report_soon()

    def _saved(self, snapshot: CheckpointSnapshot, detail: str, written: bool) -> None:
        state = self._state
        if state.snapshot is snapshot:
            state.snapshot = None
            self._last = (snapshot.url, detail) if written else None
            state.control.acknowledge(pb.SAVED, state.standing.config_id, snapshot.clock, detail=detail)

    def _write_piece(self, snapshot: CheckpointSnapshot, writer: BlockFileWriter) -> bool:
        """Wait for a piece and write it; False when there is nothing more to write."""
        with self._state.changed:
            self._await_piece(snapshot)
            copied = snapshot.next_piece()
        if copied is not None:
            writer.write(copied)
        return copied is not None

    def _await_piece(self, snapshot: CheckpointSnapshot) -> None:
        """Wait for a piece, or until there is nothing more to write. Raises _GivenUp."""
        state = self._state

        def given_up() -> bool:
            return self._ended() or state.snapshot is not snapshot

        def complete() -> bool:
            undecided = state.standing.prepared is not None or not state.is_awaiting_blocks()
            return snapshot.is_complete(undecided) and snapshot.may_be_told(state.acknowledged.told)

        with state.changed:
            state.changed.wait_for(lambda: given_up() or snapshot.has_piece or complete() or snapshot.is_late())
            if given_up():
                raise _GivenUp("another one is written, or none any more")
            if snapshot.is_late():
                state.snapshot = None
                state.control.acknowledge(pb.LATE, state.standing.config_id, state.version)
                raise _GivenUp("it came too late")
