"""A worker's connections to the servers of the configurations that it knows."""

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Protocol

from elastic_ps.core.configuration import Member, NodeId
from elastic_ps.core.errors import ElasticError, PeerLost, ProtocolError
from elastic_ps.transport.base import Buffer, Connection, Transport
from elastic_ps.transport.frames import Frame, Kind
from elastic_ps.transport.image import Image
from elastic_ps.transport.link import Link

log = logging.getLogger(__name__)

_MEND_SECONDS = 0.2
_GREETING_SECONDS = 10.0


class Owner(Protocol):
    """The node whose connections these are. Called from the links' threads and from a timer's."""

    def hello(self) -> Frame:
        """The first frame on a connection."""

    def buffers(self, server: NodeId, frame: Frame, connection: Connection) -> Sequence[Buffer]:
        """Memory for a frame's payload; may be scratch, or none where it lies in shared memory and stays there."""

    def arrived(self, server: NodeId, frame: Frame) -> None:
        """A frame is complete."""

    def wanted(self, server: NodeId) -> Member | None:
        """The server as a known configuration has it; None where nobody needs it any more."""

    def connected(self, server: NodeId) -> None:
        """A connection is open, for the first time or again: what was under way must be sent."""

    def disconnected(self, server: NodeId, reason: str) -> None:
        """A connection that is wanted broke, or could not be made; it is being mended."""


class Peers:
    """See the module."""

    def __init__(self, transport: Transport, owner: Owner):
        self._transport = transport
        self._owner = owner
        self._links: dict[NodeId, Link] = {}
        self._connecting: set[NodeId] = set()
        self._lock = threading.Lock()

    def ensure(self, server: Member) -> None:
        """Be connected to a server; where it cannot be reached now, go on trying in the background."""
        with self._lock:
            if server.id in self._links or server.id in self._connecting:
                return
            self._connecting.add(server.id)
        try:
            connection = self._connect(server)
        except (PeerLost, ProtocolError) as error:
            with self._lock:
                self._connecting.discard(server.id)
            self._mend(server.id, str(error))
            return
        with self._lock:
            self._connecting.discard(server.id)
            link = self._links[server.id] = Link(server.id, connection, self._lost)
        receive, name = (lambda: self._receive(link)), f"receive-{server.id}"
        threading.Thread(target=link.guard, args=(receive,), name=name, daemon=True).start()
        self._owner.connected(server.id)

    def _connect(self, server: Member) -> Connection:
        connection = self._transport.connect(server.host, server.port, server.id)
        patience = threading.Timer(_GREETING_SECONDS, connection.close)  # a frozen server would block its caller
        patience.daemon = True
        patience.start()
        try:
            connection.send(self._owner.hello())
            answer = connection.receive()
            if answer.kind is not Kind.ACCEPTED:
                raise PeerLost(server.id, f"refused: {answer.meta.get('detail', answer.kind.name)}")
        except (PeerLost, ProtocolError):
            connection.close()
            raise
        finally:
            patience.cancel()
        return connection

    def send(self, server: NodeId, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame; dropped where the connection is being mended (see `Owner.connected`)."""
        link = self._links.get(server)
        if link is not None:
            link.send(frame, payload)

    def gradients(self, server: NodeId, nbytes: int) -> Image | None:
        """Memory of at least `nbytes` in which the server reads this worker's gradients; None: there is none."""
        shared = self.shared(server)
        if not shared:
            return None
        image = shared[0]
        if image.array.nbytes < nbytes:
            image.follow()
        return image if image.array.nbytes >= nbytes else None

    def shared(self, server: NodeId) -> Sequence[Image]:
        """The memory that a server shares with this worker."""
        link = self._links.get(server)
        return link.connection.shared if link is not None else ()

    def transports(self) -> dict[NodeId, str]:
        """How each connected server is reached; where that is second choice, why."""
        connections = {server: link.connection for server, link in list(self._links.items())}
        return {server: ": ".join(filter(None, (to.kind, to.reason))) for server, to in connections.items()}

    def flush(self, timeout: float) -> None:
        """Wait until all queued frames have been sent, at most `timeout` seconds for each server."""
        for link in list(self._links.values()):
            link.flush(timeout)

    def keep(self, servers: Collection[NodeId]) -> None:
        """Close the connections to all others."""
        with self._lock:
            unused = [self._links.pop(server) for server in list(self._links) if server not in servers]
        for link in unused:
            link.close()

    def _receive(self, link: Link) -> None:
        while not link.closed:
            frame = link.connection.receive()
            buffers = self._owner.buffers(link.peer, frame, link.connection)
            if frame.payload_bytes:
                link.connection.receive_into(buffers)
            self._owner.arrived(link.peer, frame)

    def _lost(self, link: Link, error: ElasticError) -> None:
        with self._lock:
            if self._links.get(link.peer) is link:
                del self._links[link.peer]
        self._mend(link.peer, str(error))

    def _mend(self, server: NodeId, reason: str) -> None:
        if self._owner.wanted(server) is None:
            return
        log.warning("%s", reason)
        self._owner.disconnected(server, reason)
        timer = threading.Timer(_MEND_SECONDS, self._again, args=(server,))
        timer.daemon = True
        timer.start()

    def _again(self, server: NodeId) -> None:
        member = self._owner.wanted(server)
        if member is not None:
            self.ensure(member)
