"""A worker keeps connections to the servers of the configurations that it knows."""

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from elastic_ps.core.configuration import Member, NodeId
from elastic_ps.core.errors import ElasticError, PeerLost
from elastic_ps.transport.base import Buffer, Connection, Transport
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.hello import MEND_SECONDS, greeted, pauses
from elastic_ps.transport.send_queue import Link
from elastic_ps.transport.shared_memory import Image

log = logging.getLogger(__name__)


class Owner(Protocol):
    """An `Owner` is the node whose connections these are. It is called from the links' threads and from a timer's."""

    def hello(self) -> Frame:
        """Return the first frame on a connection."""

    def buffers(self, link: Link, frame: Frame) -> Sequence[Buffer]:
        """Return memory for a frame's payload; scratch perhaps, or none where it lies in shared memory and stays there.

        Args:
            link: the connection that it comes on.
            frame: without its payload.

        Raises:
            PeerLost: the link has closed: there may be another to that server, on which all comes again.
        """

    def arrived(self, link: Link, frame: Frame) -> None:
        """Take a frame that is complete. Raises PeerLost as `buffers` does."""

    def wanted(self, server: NodeId) -> Member | None:
        """Return the server as a known configuration has it; None where nobody needs it any more."""

    def connected(self, server: NodeId) -> None:
        """Send again what was under way: a connection is open, for the first time or again."""

    def disconnected(self, server: NodeId, reason: str) -> None:
        """Take note that a connection broke, or could not be made; where it is wanted, it is being mended."""


class ServerConnections:
    """`ServerConnections` opens a connection to each server that is wanted, and again where it breaks."""

    def __init__(self, transport: Transport, owner: Owner):
        self._transport = transport
        self._owner = owner
        self._links: dict[NodeId, Link] = {}
        self._apart: dict[NodeId, str] = {}  # servers that are being connected to, and why the last try failed
        self._lock = threading.Lock()

    def ensure(self, server: Member) -> None:
        """Connect to a server; return at once: a thread of its own tries until it is done, or nobody needs it."""
        with self._lock:
            if server.id in self._links or server.id in self._apart:
                return
            self._apart[server.id] = ""
        self._open_aside(server.id, 0.0)

    def _open_aside(self, server: NodeId, pause: float) -> None:
        threading.Thread(target=self._open, args=(server, pause), name=f"connect-{server}", daemon=True).start()

    def _open(self, server: NodeId, after: float) -> None:
        """Connect to a server in so many seconds, and again after a pause until it has greeted or nobody needs it."""
        time.sleep(after)
        for pause in pauses():
            with self._lock:
                member = self._owner.wanted(server)
                if member is None:
                    del self._apart[server]
                    return
            try:
                linked = self._linked(server, greeted(self._transport, member, self._owner.hello()))
            except PeerLost as error:
                self._complain(server, error)
                time.sleep(pause)
                continue
            if linked:
                self._owner.connected(server)
            return

    def _linked(self, server: NodeId, connection: Connection) -> bool:
        """Take a connection that is open; return False where nobody needs it any more.

        Raises:
            PeerLost: no threads can be started for it.
        """
        link: Link | None = None
        with self._lock:
            try:
                if wanted := self._owner.wanted(server) is not None:
                    link = self._links[server] = Link(server, connection, self._lost)
                    receive, name = (lambda link=link: self._receive(link)), f"receive-{server}"
                    threading.Thread(target=link.guard, args=(receive,), name=name, daemon=True).start()
            except RuntimeError as error:
                self._links.pop(server, None)
                (link or connection).close()
                raise PeerLost(server, str(error)) from error
            del self._apart[server]
        if not wanted:
            connection.close()
        return wanted

    def _complain(self, server: NodeId, error: ElasticError) -> None:
        """Tell that a try has failed, once for each reason."""
        reason = error.reason if isinstance(error, PeerLost) else str(error)
        with self._lock:
            before, self._apart[server] = self._apart.get(server), reason
        if reason != before:
            if self._owner.wanted(server) is not None:
                log.warning("%s", error)
            self._owner.disconnected(server, str(error))

    def send(self, server: NodeId, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame; dropped where the connection is being mended (see `Owner.connected`).

        Args:
            server: the server to whom it goes.
            frame: without its payload.
            payload: arrays that stay as they are until they are sent.
        """
        link = self._links.get(server)
        if link is not None:
            link.enqueue(frame, payload)

    def gradients(self, server: NodeId, nbytes: int) -> Image | None:
        """Return memory of at least `nbytes` in which the server reads this worker's gradients; None: there is none."""
        shared = self.shared(server)
        if not shared:
            return None
        image = shared[0]
        if image.array.nbytes < nbytes:
            image.follow()
        return image if image.array.nbytes >= nbytes else None

    def shared(self, server: NodeId) -> Sequence[Image]:
        """Return the memory that a server shares with this worker."""
        link = self._links.get(server)
        return link.connection.shared if link is not None else ()

    def transports(self) -> dict[NodeId, str]:
        """Return how each connected server is reached; where that is second choice, why."""
        connections = {server: link.connection for server, link in list(self._links.items())}
        return {server: ": ".join(filter(None, (to.kind, to.reason))) for server, to in connections.items()}

    def is_connected(self, server: NodeId) -> bool:
        """Return whether a server has greeted this worker, and its connection is not known to have broken."""
        return server in self._links

    def link(self, server: NodeId) -> Link | None:
        """Return the open connection to a server; None: there is none."""
        return self._links.get(server)

    @property
    def links(self) -> Sequence[Link]:
        """Return the open connections."""
        return list(self._links.values())

    @property
    def apart(self) -> Mapping[NodeId, str]:
        """Return, by server that is wanted and not connected, why the last try failed; "": the first is under way."""
        with self._lock:
            return dict(self._apart)

    def flush(self, timeout: float) -> None:
        """Wait until all queued frames have been sent, at most `timeout` seconds for each server."""
        for link in self.links:
            link.flush(timeout)

    def keep_only(self, servers: Collection[NodeId]) -> None:
        """Close the connections to all others."""
        with self._lock:
            unused = [self._links.pop(server) for server in list(self._links) if server not in servers]
        for link in unused:
            link.close()

    def _receive(self, link: Link) -> None:
        while not link.closed:
            frame = link.receive()
            buffers = self._owner.buffers(link, frame)
            if frame.payload_bytes:
                link.connection.receive_into(buffers)
            self._owner.arrived(link, frame)

    def _lost(self, link: Link, error: ElasticError) -> None:
        with self._lock:
            if self._links.get(link.peer) is not link:
                return
            del self._links[link.peer]
            self._apart[link.peer] = ""
        self._complain(link.peer, error)
        try:
            self._open_aside(link.peer, MEND_SECONDS)
        except RuntimeError:  # no thread can be started; this one ends else
            self._open(link.peer, MEND_SECONDS)
