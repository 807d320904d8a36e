import socket
from collections.abc import Iterator

import pytest

from tests.elastic_ps.transport.wiring import Memory, Shm, Striped, Tcp, Wiring, join


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


NO_IPV6 = pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 loopback here")


@pytest.fixture(
    params=[
        pytest.param(lambda: Tcp("127.0.0.1"), id="tcp-ipv4"),
        pytest.param(lambda: Tcp("::1"), id="tcp-ipv6", marks=NO_IPV6),
        pytest.param(lambda: Striped("127.0.0.1"), id="tcp-striped"),
        pytest.param(lambda: Shm("127.0.0.1"), id="shm"),
        pytest.param(Memory, id="memory"),
    ]
)
def wiring(request) -> Iterator[Wiring]:
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def line(wiring):
    """(connected, accepted): the two ends of one connection."""
    connected, accepted, listener = join(wiring)
    yield connected, accepted
    for end in (connected, accepted, listener):
        end.close()


@pytest.fixture
def listener(wiring):
    made = wiring.transport().listen(wiring.host)
    yield made
    made.close()
