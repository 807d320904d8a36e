"""This module keeps a server's connections: accepted from workers and old owners, opened to new owners."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elastic_ps.core.configuration import Member, NodeId, Role
from elastic_ps.core.errors import ElasticError, PeerLost, ProtocolError
from elastic_ps.core.segments import Raw
from elastic_ps.system.strangers import GREETING_SECONDS, CountedLog, Strangers
from elastic_ps.transport.base import Buffer, Connection, Listener, Transport
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import AcceptedMeta, HelloMeta, RefusedMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.hello import greeted
from elastic_ps.transport.send_queue import Link
from elastic_ps.transport.shared_memory import Image

log = logging.getLogger(__name__)

EXCHANGE, FOLLOW = "exchange", "follow"


@dataclass(frozen=True)
class Peer:
    """A `Peer` is who is at the other end of a connection.

    Attributes:
        link: with whom.
        lane: what the connection is for.
        memory: shared with it where the transport can: a worker's gradients, which stay; an old owner's records.
        scratch: for what travels and is used before the next frame comes.
    """

    link: Link
    lane: str
    memory: Image
    scratch: Image = field(default_factory=Image)

    @property
    def node(self) -> NodeId:
        """The peer's name."""
        return self.link.peer


class Receiver(Protocol):
    """A `Receiver` gets what connections receive. It is called from the connections' threads."""

    def welcome(self, node: NodeId, lane: str, to: NodeId) -> str:
        """Return why a peer that greets is refused; "" where it is welcome.

        Args:
            node: the peer.
            lane: what the connection is for.
            to: whom it means.
        """

    def connected(self, node: NodeId, lane: str) -> None:
        """Take note that a peer has been greeted, and that frames for it go to its new connection from now on."""

    def shares(self, lane: str) -> tuple[Image, Sequence[Image]]:
        """Return memory for what a peer sends (a worker's gradients, an old owner's records), and what it may read
        here.
        """

    def buffers(self, peer: "Peer", frame: Frame) -> list[Raw]:
        """Return memory for the payload that a frame must bring: of each run one array, or one of all. May wait."""

    def arrived(self, peer: "Peer", frame: Frame, data: list[Raw]) -> None:
        """Take a frame that is complete.

        Args:
            peer: the peer who sent it.
            frame: without its payload.
            data: what `buffers` gave, filled.
        """

    def idle(self) -> None:
        """Take note that a queue has become empty."""

    def lost(self, node: NodeId, lane: str, reason: str) -> None:
        """Take note that a connection broke.

        Args:
            node: the peer at the other end.
            lane: what it was for.
            reason: why it broke.
        """


class Connections:
    """`Connections` keeps every connection of a server; it is the state's `Outbox`.

    Args:
        transport: the transport of the data plane.
        listener: accepts connections to this server.
        receiver: gets what comes; called from the connections' threads.
        guard: runs a thread's body and reports its death.
    """

    def __init__(
        self,
        transport: Transport,
        listener: Listener,
        receiver: Receiver,
        guard: Callable[[str, Callable[[], None]], threading.Thread],
    ):
        self._transport = transport
        self._listener = listener
        self._receiver = receiver
        self._guard = guard
        self._lock = threading.Lock()
        self._accepted: dict[tuple[NodeId, str], Link] = {}  # by peer and lane, the latest
        self._links: set[Link] = set()
        self._strangers: Strangers[Connection] = Strangers(lambda connection: connection.hang_up())
        self._turned_away = CountedLog(log)
        self._closed = False

    def start(self) -> None:
        """Accept peers from now on."""
        self._guard("accept", self._accept)

    def close(self) -> None:
        """Close the listener and every connection."""
        with self._lock:
            self._closed = True
            links = list(self._links)
        self._listener.close()
        for link in links:
            link.close()

    @property
    def links(self) -> Sequence[Link]:
        """Return all that are open."""
        with self._lock:
            return [link for link in self._links if not link.closed]

    def has(self, node: NodeId, lane: str) -> bool:
        """Return whether a peer has opened a connection for a lane that is not known to have broken."""
        return (node, lane) in self._accepted

    def received(self, node: NodeId, lane: str) -> int:
        """Return the bytes that have come over the connection that a peer has opened for a lane; 0: there is none."""
        link = self._accepted.get((node, lane))
        return link.signs[0] if link is not None else 0

    def _to(self, worker: NodeId) -> Link | None:
        return self._accepted.get((worker, EXCHANGE))

    # ---- Outbox ------------------------------------------------------------------------------------------------------

    def send(self, node: NodeId, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """See `Outbox`."""
        link = self._to(node)
        if link is not None:
            link.enqueue(frame, payload)

    def notice(self, frame: Frame) -> None:
        """See `Outbox`."""
        for link in self.links:
            link.enqueue(frame)

    def backlog(self, node: NodeId) -> int:
        """See `Outbox`."""
        link = self._to(node)
        return link.backlog if link is not None else 0

    def is_connected(self, node: NodeId) -> bool:
        """See `Outbox`."""
        return self._to(node) is not None

    def shares(self, node: NodeId) -> bool:
        """See `Outbox`."""
        link = self._to(node)
        return link is not None and bool(link.connection.shared)

    def disconnect(self, nodes: frozenset[NodeId]) -> None:
        """See `Outbox`."""
        with self._lock:
            links = [link for link in self._links if link.peer in nodes]
        for link in links:
            self._drop(link)

    def flush(self, timeout: float) -> None:
        """Wait until what is queued for workers has been sent, at most `timeout` seconds for each."""
        with self._lock:
            links = [link for (_, lane), link in self._accepted.items() if lane == EXCHANGE]
        for link in links:
            link.flush(timeout)

    # ---- opening and accepting ---------------------------------------------------------------------------------------

    def open_follow(self, target: Member, hello: Frame) -> Link:
        """Connect to a new owner for a follow stream.

        Raises:
            PeerLost: it cannot be reached, or refuses; or this process has no descriptor or thread left for it.
        """
        connection = greeted(self._transport, target, hello)
        try:
            peer = Peer(self._register(target.id, FOLLOW, connection, accepted=False), FOLLOW, Image())
            self._guard(f"receive-{target.id}", lambda: self._receive(peer))
        except (OSError, RuntimeError) as error:
            for link in self.links:
                if link.connection is connection:
                    self._drop(link)
            connection.close()
            raise PeerLost(target.id, f"cannot be received from: {error}") from error
        return peer.link

    def _register(self, node: NodeId, lane: str, connection: Connection, accepted: bool = True) -> Link:
        """Keep a connection; one that a peer opens takes the place of its older one in the same lane."""
        link = Link(node, connection, lambda gone, error: self._lost(gone, lane, error), self._receiver.idle)
        with self._lock:
            older = self._accepted.get((node, lane)) if accepted else None
            self._links.add(link)
            if accepted:
                self._accepted[node, lane] = link
        if older is not None:
            self._drop(older)
        return link

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except PeerLost:
                return
            self._strangers.enter(connection)
            try:
                self._guard(f"greet-{connection.peer}", lambda connection=connection: self._greet(connection))  # type: ignore[misc]
            except RuntimeError as error:  # no thread can be started
                self._turned_away.warning("a connection from %s was closed: %s", connection.peer, error)
                self._strangers.leave(connection)
                connection.close()

    def _greet(self, connection: Connection) -> None:
        """Answer a peer's HELLO, then receive from it until the connection ends."""
        stranger = connection
        patience = threading.Timer(GREETING_SECONDS, lambda: connection.hang_up())
        patience.daemon = True
        try:
            connection.greet(GREETING_SECONDS)
            patience.start()
            hello = connection.receive()
            if hello.kind is Kind.JOIN:
                whole = self._transport.joined(connection, hello)
                if whole is None:
                    return  # the thread of the last of its sockets goes on
                connection = whole
                hello = whole.receive()
            node, lane, refusal = self._judge(hello)
            if refusal:
                connection.send(Frame(RefusedMeta(reason=Reason.UNKNOWN, detail=refusal)))
                connection.close()
                return
            memory, values = self._receiver.shares(lane)
            connection.share(memory, values)
            connection.send(Frame(AcceptedMeta()))
            peer = Peer(self._register(node, lane, connection), lane, memory)
            self._receiver.connected(node, lane)
        except (PeerLost, ProtocolError, RuntimeError, OSError) as error:  # no thread can be started, no memory shared
            self._turned_away.warning("a connection from %s was closed: %s", connection.peer, error)
            connection.close()
            return
        finally:
            patience.cancel()
            self._strangers.leave(stranger)
        threading.current_thread().name = f"receive-{node}"
        self._receive(peer)

    def _judge(self, hello: Frame) -> tuple[NodeId, str, str]:
        said = hello.of(HelloMeta)
        node, role, lane = said.node, said.role, said.lane
        if (role, lane) not in ((Role.WORKER, EXCHANGE), (Role.SERVER, FOLLOW)):
            raise ProtocolError(f"a {role} greets for lane {lane}, which is not its own")
        return node, lane, self._receiver.welcome(node, lane, said.to)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def _receive(self, peer: Peer) -> None:
        link = peer.link
        try:
            while True:
                link.check_open()
                self._receive_one(peer)
        except ProtocolError as error:
            log.warning("%s sent what no correct peer sends: %s", link.peer, error)
            link.enqueue(Frame(RefusedMeta(reason=Reason.MALFORMED, detail=str(error))))
            link.flush(1.0)
            self._lost(link, peer.lane, error)
        except PeerLost as error:
            self._lost(link, peer.lane, error)

    def _receive_one(self, peer: Peer) -> None:
        connection = peer.link.connection
        frame = peer.link.receive()
        if frame.kind is Kind.GOODBYE:
            self._drop(peer.link)
            return
        try:
            data = self._receiver.buffers(peer, frame)
        except OSError as error:  # no memory can be mapped: it comes again on the next connection
            raise PeerLost(peer.node, f"there is no room for its {frame.kind.name}: {error}") from error
        wanted = sum(part.nbytes for part in data)
        if frame.payload_bytes != wanted:
            size = frame.payload_bytes
            raise ProtocolError(f"a {frame.kind.name} of blocks {frame.runs} has {size} bytes, not {wanted}")
        connection.receive_into(data)
        if not peer.link.closed:
            self._receiver.arrived(peer, frame, data)

    def _lost(self, link: Link, lane: str, error: ElasticError) -> None:
        if self._drop(link) and not self._closed:
            self._receiver.lost(link.peer, lane, str(error))

    def _drop(self, link: Link) -> bool:
        """Forget and close a link; False where that had been done."""
        with self._lock:
            known = link in self._links
            self._links.discard(link)
            for key, latest in list(self._accepted.items()):
                if latest is link:
                    del self._accepted[key]
        link.close()
        return known
