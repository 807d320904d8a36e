"""This module chooses which transport a node takes."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from elastic_ps.core.errors import PeerLost
from elastic_ps.system.process.file_descriptors import how_to_have_more
from elastic_ps.transport.base import Transport
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.stream import SocketConnection
from elastic_ps.transport.tcp import TcpTransport

log = logging.getLogger(__name__)


class TransportName(StrEnum):
    """A `TransportName` is what an operator asks for."""

    AUTO = "auto"
    SHM = "shm"
    TCP = "tcp"


class AutoTransport(ShmTransport):
    """An `AutoTransport` takes shared memory where there can be some, else TCP.

    Args:
        token: see `ShmTransport`.
        sockets: see `ShmTransport`.
        folder: see `ShmTransport`.
    """

    def __init__(self, token: bytes, sockets: int = 1, folder: str = ""):
        super().__init__(token, sockets, folder)
        self._no_room: dict[tuple[str, int], str] = {}  # why, by the address of a peer whose memory was not taken

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> SocketConnection:
        """See `Transport.connect`."""
        reason = self._no_room.get((host, port), "")
        if not reason:
            try:
                return super().connect(host, port, peer, timeout)
            except PeerLost as error:
                reason = error.reason
        connection = self.tcp.connect(host, port, peer, timeout)
        connection.reason = ", ".join(filter(None, (reason, connection.reason)))
        log.info("connected to %s by TCP: %s", peer, reason)
        return connection

    def unattached(self, host: str, port: int, error: OSError) -> None:
        """See `ShmTransport.unattached`: TCP takes fewer descriptors, and is tried next."""
        self._no_room[host, port] = f"no room for the memory of {host}:{port} ({error.strerror}); {how_to_have_more()}"


FOLDER = "ELASTIC_SHARED_MEMORY"
"""This environment variable has the folder of `ShmRendezvous`: it tells where a process is, not what its job wants."""

TRANSPORTS: Mapping[TransportName, Callable[[bytes, int, str], Transport]] = {
    TransportName.AUTO: AutoTransport,
    TransportName.SHM: ShmTransport,
    TransportName.TCP: lambda token, sockets, _folder: TcpTransport(token, sockets),
}
"""Each is made with the job's token, the sockets of a TCP connection and the folder that processes of a host share."""


@dataclass(frozen=True)
class TransportSettings:
    """A `TransportSettings` says how a node's tensors travel.

    Attributes:
        name: of the transport.
        sockets: of each TCP connection that the node opens.
    """

    name: TransportName = TransportName.AUTO
    sockets: int = 1

    def make(self, token: bytes) -> Transport:
        """Make the transport, with the job's token; the environment says where processes of a host meet."""
        return TRANSPORTS[self.name](token, self.sockets, os.environ.get(FOLDER, "").rstrip("/"))


DEFAULT_TRANSPORT = TransportSettings()
