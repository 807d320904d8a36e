"""A shadow worker, who joins, is sent every version of a server's values, or where its path is slower, fewer."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import ConfigId, NodeId
from elastic_ps.core.model import Run
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.copying.follow_source import BACKLOG_BYTES
from elastic_ps.server.copying.snapshot_pieces import next_run
from elastic_ps.server.interfaces import Outbox
from elastic_ps.server.phases import BlockStatus, having
from elastic_ps.transport.frame_metas import ValueMeta
from elastic_ps.transport.frames import Frame

_STILL_SECONDS = 1.0


class Subscription:
    """A `Subscription` knows what one shadow has been sent. Guarded by `ServerState.changed`.

    A version is of use to it only whole, from all servers. So where a version is about to be sent while more than
    `BACKLOG_BYTES` wait, it is left out, and from then on all but every second, then every fourth, ...: servers whose
    paths differ leave out differently many, and those that the slowest sends all of them send. At most `BACKLOG_BYTES`
    and one version wait, but once the shadow's plan is armed: then it needs every version, and there are few.

    Args:
        node: the shadow.
        store: this server's blocks.
        outbox: sends on the shadow's connection.
        may_tell: returns by block whether its value may be told.
    """

    def __init__(
        self,
        node: NodeId,
        store: ServerBlockStore,
        outbox: Outbox,
        may_tell: Callable[[], NDArray[np.bool_] | bool] = lambda: True,
    ):
        self.node = node
        self._store = store
        self._outbox = outbox
        self._may_tell = may_tell
        self._unsent = np.ones(len(store.status), dtype=bool)
        self._stride = 1
        self._version = -1  # the latest that an update has brought
        self._takes = True
        self._updated = 0.0  # when it did, monotonic

    def grow(self) -> None:
        """Take in that the model has new blocks."""
        self._unsent = np.append(self._unsent, np.ones(len(self._store.status) - len(self._unsent), dtype=bool))

    def takes(self, version: int, armed: bool) -> bool:
        """Return whether it is sent a version, of which some blocks have come to be: all of it or nothing.

        Args:
            version: not below any of those before.
            armed: its plan is.
        """
        if version != self._version:
            self._version, self._updated = version, time.monotonic()
            self._takes = armed or version % self._stride == 0
            if self._takes and not armed and self._outbox.backlog(self.node) > BACKLOG_BYTES:
                self._stride *= 2
                self._takes = False
        return self._takes

    @property
    def has_work(self) -> bool:
        """Return whether `next_piece` would do something."""
        if not self._outbox.is_connected(self.node) or self._outbox.backlog(self.node) > BACKLOG_BYTES:
            return False
        if self._stride > 1 and time.monotonic() - self._updated < _STILL_SECONDS:
            return False  # pieces of versions that go by would only be in the way of the whole ones
        return bool(self._pending().any())

    def _pending(self) -> NDArray[np.bool_]:
        """Return by block whether its value may be sent and has not been: its follower has it."""
        pending: NDArray[np.bool_] = self._unsent & having(self._store.status, BlockStatus.PRIMARY) & self._may_tell()
        return pending

    @property
    def lags(self) -> bool:
        """Return whether versions are left out: what is owed is sent when the job stands still, which nobody tells."""
        return self._stride > 1 and self._outbox.is_connected(self.node) and bool(self._unsent.any())

    def next_piece(self, number: ConfigId) -> bool:
        """Copy and queue one piece of the blocks that have not been sent; False where there is none."""
        piece = next_run(self._store, self._pending())
        if piece is None:
            return False
        self.sent(piece)
        frame = Frame(ValueMeta(runs=(piece,)), number, int(self._store.versions[piece[0]]))
        self._outbox.send(self.node, frame, [part.copy() for part in self._store.values.pieces(piece)])
        return True

    def flush(self, number: ConfigId) -> None:
        """Queue all that has not been sent: what comes behind is of another configuration."""
        while self.next_piece(number):
            pass

    def sent(self, run: Run) -> None:
        """Note that a VALUE of these blocks is on its way: only what changes them is owed now."""
        self._unsent[run[0] : sum(run)] = False

    def owes(self, run: Run) -> None:
        """Note that blocks have changed whose values are not sent now."""
        self._unsent[run[0] : sum(run)] = True
