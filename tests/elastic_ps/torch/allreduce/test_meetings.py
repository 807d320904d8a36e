"""Members meet for a group at one of them: who was too early meets the others at a later try."""

import socket
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role  # noqa: E402
from elastic_ps.torch.allreduce import group  # noqa: E402
from elastic_ps.torch.allreduce.group import Rendezvous  # noqa: E402
from tests.elastic_ps.waiting import until  # noqa: E402

HOST = "127.0.0.1"

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("early", [0, 1])
def test_who_was_too_early_for_a_first_try_meets_the_others_at_the_second(monkeypatch, early):
    """The address of the first try was there yet: the other one connected to it, and both had failed again."""
    rendezvous = [Rendezvous(HOST, b"t" * 16) for _ in range(2)]
    members = tuple(Member(f"w{rank}", Role.WORKER, HOST, each.port) for rank, each in enumerate(rendezvous))
    configuration, changed, built = Configuration(ConfigId(1, 1), members, ()), threading.Condition(), {}

    def build(rank):
        built[rank] = rendezvous[rank].build(configuration, f"w{rank}", changed)

    monkeypatch.setattr(group, "BUILD_SECONDS", 0.3)
    with pytest.raises(RuntimeError):
        build(early)
    monkeypatch.setattr(group, "BUILD_SECONDS", 5.0)
    threads = [threading.Thread(target=build, args=(rank,), daemon=True) for rank in (1 - early, early)]
    for thread in threads:
        thread.start()
        time.sleep(0.5)  # the other one looks for the address of who was early
    until(lambda: len(built) == 2)
    for each in built.values():
        each.close()


def test_gloo_is_given_the_address_that_all_else_takes(monkeypatch):
    """Of a host with both kinds it took the IPv6 one, which the others, who take the IPv4 one, might not reach."""
    both = [(socket.AF_INET6, ("::1", 0, 0, 0)), (socket.AF_INET, ("127.0.0.1", 0))]
    found = [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address) for family, address in both]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **_options: found)
    given = []

    def create_device(hostname):
        given.append(hostname)
        raise RuntimeError("far enough")

    monkeypatch.setattr(torch.distributed.ProcessGroupGloo, "create_device", staticmethod(create_device))
    rendezvous = Rendezvous("localhost", b"t" * 16)
    members = tuple(Member(f"w{rank}", Role.WORKER, "localhost", rendezvous.port) for rank in range(2))
    with pytest.raises(RuntimeError, match="far enough"):
        rendezvous.build(Configuration(ConfigId(1, 1), members, ()), "w0", threading.Condition())
    assert given == [HOST]
    rendezvous.close()
