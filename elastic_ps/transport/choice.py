"""Which transport a node takes."""

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum

from elastic_ps.core.errors import PeerLost
from elastic_ps.transport.base import Transport
from elastic_ps.transport.shm import ShmTransport
from elastic_ps.transport.stream import SocketConnection
from elastic_ps.transport.tcp import TcpTransport

log = logging.getLogger(__name__)


class TransportName(StrEnum):
    """What an operator asks for."""

    AUTO = "auto"
    SHM = "shm"
    TCP = "tcp"


class AutoTransport(ShmTransport):
    """Shared memory where there can be some, else TCP."""

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> SocketConnection:
        """See `Transport.connect`."""
        try:
            return super().connect(host, port, peer, timeout)
        except PeerLost as error:
            connection = self.tcp.connect(host, port, peer, timeout)
            connection.reason = error.reason
            log.info("TCP to %s: %s", peer, error.reason)
            return connection


TRANSPORTS: Mapping[TransportName, Callable[[bytes], Transport]] = {
    TransportName.AUTO: AutoTransport,
    TransportName.SHM: ShmTransport,
    TransportName.TCP: TcpTransport,
}
"""Each is made with the job's token."""
