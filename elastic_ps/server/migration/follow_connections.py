"""This module keeps the connections of the follow streams open, from an owner to each follower and next owner.

What they carry is in `copying.follow_source` and `follow_target`.

No directive waits for a peer here: each connection is opened by a thread of its own, and opened again when it breaks.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from elastic_ps.core.configuration import ConfigId, Member, NodeId, Role
from elastic_ps.core.errors import PeerLost
from elastic_ps.server.connections import FOLLOW
from elastic_ps.transport.frame_metas import HelloMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.hello import MEND_SECONDS, pauses
from elastic_ps.transport.send_queue import Link

log = logging.getLogger(__name__)


class Plans(Protocol):
    """`Plans` knows which streams there must be (see `PlanSteps`)."""

    def unfed(self) -> Mapping[NodeId, tuple[Member, ConfigId]]:
        """Return those whose stream is not open, and a configuration that names them."""

    def feed(self, target: NodeId, link: Link) -> bool:
        """Take a connection to a follower that is open; return False where nobody needs it any more."""


class FollowStreams:
    """`FollowStreams` opens a stream to each follower and next owner that has none.

    Args:
        node: this server.
        plans: knows which streams there must be.
        open_follow: connects to a new owner, greets it with a HELLO, and receives from it.
        spawn: starts a named thread.
        ended: set when this server's part in the job is over.
    """

    def __init__(
        self,
        node: NodeId,
        plans: Plans,
        open_follow: Callable[[Member, Frame], Link],
        spawn: Callable[[str, Callable[[], None]], object],
        ended: threading.Event,
    ):
        self._node = node
        self._plans = plans
        self._open_follow = open_follow
        self._spawn = spawn
        self._ended = ended
        self._lock = threading.Lock()
        self._apart: dict[NodeId, str] = {}  # those that are being opened, and why the last try failed

    @property
    def apart(self) -> Mapping[NodeId, str]:
        """Return, by new owner whose stream should be open and is not, why the last try failed; "": none has yet."""
        with self._lock:
            return dict(self._apart)

    def ensure(self, broken: str = "") -> None:
        """Open what is not open; returns at once. `broken`: what ended a stream just now."""
        unfed = self._plans.unfed()
        with self._lock:
            targets = [target for target in unfed if target not in self._apart]
            self._apart.update(dict.fromkeys(targets, broken))
        for target in targets:
            self._spawn(f"open-{target}", lambda target=target: self._open(target))  # type: ignore[misc]

    def _open(self, target: NodeId) -> None:
        """Open a stream, again and again after a pause, until it is open or nobody needs it."""
        if self.apart.get(target):  # it has just broken
            self._ended.wait(MEND_SECONDS)
        tries = pauses()
        while (wanted := self._needed(target)) is not None:
            self._try(target, *wanted)
            if target in self._plans.unfed():
                self._ended.wait(next(tries))

    def _try(self, target: NodeId, server: Member, number: ConfigId) -> None:
        hello = Frame(HelloMeta(node=self._node, role=Role.SERVER, lane=FOLLOW), number)
        try:
            link = self._open_follow(server, hello)
        except PeerLost as error:
            self._complain(target, error)
            return
        if not self._plans.feed(target, link):
            link.close()

    def _needed(self, target: NodeId) -> tuple[Member, ConfigId] | None:
        """Return what is to be opened; None ends this stream's thread: the next `ensure` starts another."""
        with self._lock:
            wanted = None if self._ended.is_set() else self._plans.unfed().get(target)
            if wanted is None:
                del self._apart[target]
            return wanted

    def _complain(self, target: NodeId, error: PeerLost) -> None:
        with self._lock:
            before, self._apart[target] = self._apart[target], error.reason
        if before != error.reason:
            log.warning("%s", error)
