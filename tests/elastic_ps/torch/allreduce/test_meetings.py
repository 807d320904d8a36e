"""Members meet for a group at one of them: who was too early meets the others at a later try."""

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
