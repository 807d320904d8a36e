"""A `Restorer` reads a server's blocks out of a checkpoint, in a thread of its own: a storage takes its time."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.server.checkpoints.files import BlockManifest, SavedBlock
from elastic_ps.server.migration.plan_steps import PlanSteps
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.system import storage
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""That a storage which does not answer is asked again for the same bytes."""


STUCK_SECONDS = 300.0
"""That a storage may leave a read without an answer."""


class _GivenUp(CheckpointError):
    """The plan that the blocks were for is no more."""


class Restorer:
    """A `Restorer` fills the blocks of a prepared start from a checkpoint, and answers PREPARED, UNREADABLE or UNREAD.

    Args:
        state: the server's.
        migration: the same server's.
        spawn: starts a named thread.
        ended: whether this server's part in the job is over.
        patience: see `PATIENCE_SECONDS`.
        stuck: see `STUCK_SECONDS`.
    """

    def __init__(
        self,
        state: ServerState,
        plan_steps: PlanSteps,
        spawn: Callable[[str, Callable[[], None]], object],
        ended: Callable[[], bool],
        patience: float = PATIENCE_SECONDS,
        stuck: float = STUCK_SECONDS,
    ):
        self._state = state
        self._plan_steps = plan_steps
        self._spawn = spawn
        self._ended = ended
        self._patience = patience
        self._stuck = stuck
        self._begun: ConfigId | None = None
        self._moved = 0.0  # when the last block came, monotonic

    def restore(self, number: ConfigId, manifest_url: str) -> None:
        """Fill the blocks that the prepared configuration gives this server; once, however often it is asked for."""
        with self._state.changed:
            empty = self._state.store.held(BlockStatus.EMPTY).tolist()
            if not empty or not self._state.standing.holds(number):
                self._plan_steps.prepared(number)
            elif self._begun == number:
                self._check_progress(number, manifest_url)
            else:
                self._begun, self._moved = number, time.monotonic()
                self._spawn("restore", lambda: self._run(number, manifest_url, empty))

    def _check_progress(self, number: ConfigId, manifest_url: str) -> None:
        """Fail where the storage has given nothing for long: it is not waited for without end."""
        silent = time.monotonic() - self._moved
        if silent > self._stuck:
            self._fail(number, pb.UNREAD, f"{manifest_url}: its storage has given nothing for {silent:.0f} s")

    def _run(self, number: ConfigId, manifest_url: str, blocks: Sequence[int]) -> None:
        try:
            self._load(number, manifest_url, blocks)
        except _GivenUp:
            return
        except (CheckpointError, StorageError, FileNotFoundError) as error:
            kind = pb.UNREADABLE if isinstance(error, CheckpointError) else pb.UNREAD
            self._fail(number, kind, f"it cannot be read: {error}" if kind == pb.UNREAD else str(error))
            return
        self._plan_steps.prepared(number)

    def _fail(self, number: ConfigId, kind: "pb.Answer", detail: str) -> None:
        log.error("the checkpoint of plan %s cannot be loaded: %s", number, detail)
        with self._state.changed:
            if not self._is_over(number):
                self._plan_steps.forget(number)
                self._state.control.acknowledge(kind, number, detail=detail)

    def _load(self, number: ConfigId, manifest_url: str, blocks: Sequence[int]) -> None:
        state = self._state

        def over() -> bool:
            with state.changed:
                return self._is_over(number)

        manifest = BlockManifest(storage.patiently(lambda: storage.read(manifest_url), self._patience, over))
        with state.changed:
            entries = manifest.entries(state.store, blocks)
        folder = manifest_url.rpartition("/")[0]
        for name, found in entries.items():
            reader = _Reader(f"{folder}/{name}")
            for block, entry in found:
                data = storage.patiently(partial(reader.read, entry), self._patience, over)
                entry.check(block, name, data)
                self._fill(number, block, entry, data, manifest)
            reader.close()

    def _fill(self, number: ConfigId, block: int, entry: SavedBlock, data: bytes, manifest: BlockManifest) -> None:
        state = self._state
        with state.changed:
            if self._is_over(number):
                raise _GivenUp(f"the plan {number} is over")
            image = np.frombuffer(data, dtype=np.uint8)
            state.store.load((block, 1), image, entry.version, [entry.count], manifest.applied(block))
            state.store.status[block] = BlockStatus.PRIMARY
            self._moved = time.monotonic()

    def _is_over(self, number: ConfigId) -> bool:
        return self._ended() or self._begun != number or not self._state.standing.holds(number)


class _Reader:
    """A `_Reader` keeps a data file open between reads; after an error it is opened anew."""

    def __init__(self, url: str):
        self._url = url
        self._file: Any = None

    def read(self, entry: SavedBlock) -> bytes:
        """Return a block's bytes, fewer at the file's end. Raises as `storage.read`."""
        try:
            with storage.asked(self._url):
                if self._file is None:
                    system, path = storage.located(self._url)
                    self._file = system.open(path, "rb")
                self._file.seek(entry.offset)
                return bytes(self._file.read(entry.length))
        except (StorageError, FileNotFoundError):
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):  # only read: nothing can be lost
                file.close()
