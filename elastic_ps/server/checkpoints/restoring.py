"""A `Restorer` reads blocks out of a checkpoint, in a thread of its own: a storage takes its time."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.node.standing import Standing
from elastic_ps.server.checkpoints.files import BlockManifest, SavedBlock
from elastic_ps.system import storage
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""That a storage which does not answer is asked again for the same bytes."""


STUCK_SECONDS = 300.0
"""That a storage may leave a read without an answer."""


class _GivenUp(CheckpointError):
    """The plan that the blocks were for is no more."""


class NodeState(Protocol):
    """A `NodeState` is what any kind of node knows of its configurations.

    Attributes:
        changed: guards it.
        standing: its configurations.
    """

    changed: threading.Condition
    standing: Standing


class BlockHolder(Protocol):
    """A `BlockHolder` is what a node's blocks are filled by. All but `prepared` is called under the node's lock."""

    def missing(self) -> Sequence[int]:
        """Return the blocks that it has to hold, and whose bytes it lacks."""

    def check(self, block: int, entry: SavedBlock) -> None:
        """Refuse what it cannot hold. Raises CheckpointError."""

    def fill(self, block: int, entry: SavedBlock, data: bytes, manifest: BlockManifest) -> None:
        """Take a block's bytes, which are whole.

        Args:
            block: its id.
            entry: what the manifest says of it.
            data: values and states.
            manifest: of the checkpoint.
        """

    def prepared(self, number: ConfigId) -> None:
        """Answer that the configuration's blocks are all here."""

    def failed(self, number: ConfigId, kind: "pb.Answer", detail: str) -> None:
        """Answer that they cannot be read.

        Args:
            number: of the configuration that they are for.
            kind: UNREADABLE or UNREAD.
            detail: why, for people.
        """


class Restorer:
    """A `Restorer` fills the blocks of a prepared start from a checkpoint, and answers PREPARED, UNREADABLE or UNREAD.

    Args:
        state: the node's.
        holder: its blocks.
        spawn: starts a named thread.
        ended: whether the node's part in the job is over.
        patience: see `PATIENCE_SECONDS`.
        stuck: see `STUCK_SECONDS`.
    """

    def __init__(
        self,
        state: NodeState,
        holder: BlockHolder,
        spawn: Callable[[str, Callable[[], None]], object],
        ended: Callable[[], bool],
        patience: float = PATIENCE_SECONDS,
        stuck: float = STUCK_SECONDS,
    ):
        self._state = state
        self._holder = holder
        self._spawn = spawn
        self._ended = ended
        self._patience = patience
        self._stuck = stuck
        self._begun: ConfigId | None = None
        self._moved = 0.0  # when the last block came, monotonic

    def restore(self, number: ConfigId, manifest_url: str) -> None:
        """Fill the blocks that the prepared configuration gives the node; once, however often it is asked for."""
        with self._state.changed:
            empty = self._holder.missing()
            if not empty or not self._state.standing.holds(number):
                self._holder.prepared(number)
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
        self._holder.prepared(number)

    def _fail(self, number: ConfigId, kind: "pb.Answer", detail: str) -> None:
        log.error("the checkpoint of plan %s cannot be loaded: %s", number, detail)
        with self._state.changed:
            if not self._is_over(number):
                self._holder.failed(number, kind, detail)

    def _load(self, number: ConfigId, manifest_url: str, blocks: Sequence[int]) -> None:
        holder = self._holder

        def over() -> bool:
            with self._state.changed:
                return self._is_over(number)

        manifest = BlockManifest(storage.patiently(lambda: storage.read(manifest_url), self._patience, over))
        entries = manifest.entries(blocks)
        with self._state.changed:
            for found in entries.values():
                for block, entry in found:
                    holder.check(block, entry)
        folder = manifest_url.rpartition("/")[0]
        for name, found in entries.items():
            reader = _Reader(f"{folder}/{name}")
            for block, entry in found:
                data = storage.patiently(partial(reader.read, entry), self._patience, over)
                entry.check(block, name, data)
                self._fill(number, block, entry, data, manifest)
            reader.close()

    def _fill(self, number: ConfigId, block: int, entry: SavedBlock, data: bytes, manifest: BlockManifest) -> None:
        with self._state.changed:
            if self._is_over(number):
                raise _GivenUp(f"the plan {number} is over")
            self._holder.fill(block, entry, data, manifest)
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
