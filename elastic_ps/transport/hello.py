"""This module begins a connection to a server: HELLO, and its answer within a bound."""

import threading
from collections.abc import Iterator
from dataclasses import replace

from elastic_ps.core.configuration import Member
from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.system.strangers import GREETING_SECONDS
from elastic_ps.transport.base import Connection, Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, RefusedMeta
from elastic_ps.transport.frames import Frame

MEND_SECONDS = 0.2
"""The first pause after which a connection that broke is opened again."""

_MOST_PAUSE = 1.0


def pauses() -> Iterator[float]:
    """Yield the seconds between one try to open a connection and the next."""
    pause = MEND_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, _MOST_PAUSE)


def greeted(transport: Transport, server: Member, hello: Frame) -> Connection:
    """Connect to a server and greet it; return once it has accepted.

    Args:
        transport: to connect by.
        server: to connect to.
        hello: the first frame; whom it means is added.

    Raises:
        PeerLost: it cannot be reached, says nothing in time, refuses, or is none of this job's, or another of it.
    """
    connection = transport.connect(server.host, server.port, server.id)
    late = threading.Event()

    def give_up() -> None:
        late.set()
        connection.hang_up()  # closed below, by the thread that uses it

    patience = threading.Timer(GREETING_SECONDS, give_up)  # a frozen server would hold up its caller for ever
    patience.name, patience.daemon = f"greeting-{server.id}", True
    try:
        patience.start()
        connection.send(replace(hello, meta=replace(hello.of(HelloMeta), to=server.id)))
        answer = connection.receive()
        if answer.kind is not Kind.ACCEPTED:
            why = answer.meta.detail if isinstance(answer.meta, RefusedMeta) else answer.kind.name
            raise PeerLost(server.id, f"refused: {why}")
    except (PeerLost, ProtocolError, RuntimeError) as error:  # the last: no thread can be started
        connection.close()
        if late.is_set():
            raise PeerLost(server.id, f"has not answered the greeting within {GREETING_SECONDS:g} s") from error
        raise error if isinstance(error, PeerLost) else PeerLost(server.id, str(error)) from error
    finally:
        patience.cancel()
    return connection
