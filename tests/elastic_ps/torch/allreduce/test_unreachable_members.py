"""A member that does not answer keeps nobody waiting for ever, and is told of."""

import socket
import threading
from contextlib import closing

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role  # noqa: E402
from elastic_ps.torch.allreduce import group  # noqa: E402
from elastic_ps.torch.allreduce.group import Rendezvous  # noqa: E402
from elastic_ps.torch.allreduce.peer_probe import PeerProbe  # noqa: E402
from tests.elastic_ps.waiting import until  # noqa: E402

HOST = "127.0.0.1"
TOKEN = b"t" * 16

pytestmark = pytest.mark.timeout(60)


def member(name, port):
    return Member(name, Role.WORKER, HOST, port)


def listener():
    return closing(socket.create_server((HOST, 0)))


def test_who_does_not_answer_twice_is_apart_until_it_answers():
    with closing(socket.socket()) as sock:
        sock.bind((HOST, 0))  # nobody else has its port, and nobody is let in before it listens
        awaited = [member("w1", sock.getsockname()[1])]
        probe = PeerProbe(lambda: awaited)
        probe.look(5.0)
        assert probe.apart == {}, "it may be a moment"
        probe.look(5.0)
        assert list(probe.apart) == ["w1"]
        assert "refused" in probe.apart["w1"]
        sock.listen()
        probe.look(5.0)
    assert probe.apart == {}


def test_who_is_not_waited_for_any_more_is_not_apart():
    with listener() as taken:
        awaited = [member("w1", taken.getsockname()[1])]
    probe = PeerProbe(lambda: awaited)
    probe.look(5.0)
    probe.look(5.0)
    assert probe.apart
    awaited.clear()
    probe.look(5.0)
    assert probe.apart == {}


def test_a_group_is_given_up_where_a_member_does_not_come(monkeypatch):
    """Gloo takes its collectives' timeout, an hour, for meeting too, where it is not told another."""
    monkeypatch.setattr(group, "BUILD_SECONDS", 0.3)
    rendezvous = Rendezvous(HOST, TOKEN)
    members = (member("w0", rendezvous.port), member("w1", 1))
    configuration = Configuration(ConfigId(1, 1), members, ())
    with pytest.raises(RuntimeError):
        rendezvous.build(configuration, "w0", threading.Condition())


def test_who_waits_for_members_is_let_go_when_this_worker_ends():
    """Else it came back while the interpreter ends, which ends the process by SIGABRT."""
    rendezvous, failed = Rendezvous(HOST, TOKEN), []
    configuration = Configuration(ConfigId(1, 1), (member("w0", rendezvous.port), member("w1", 1)), ())

    def build():
        with pytest.raises(RuntimeError) as raised:
            rendezvous.build(configuration, "w0", threading.Condition())
        failed.append(raised.value)

    thread = threading.Thread(target=build, daemon=True)
    thread.start()
    until(lambda: rendezvous._waiting)
    rendezvous.close()
    assert not thread.is_alive()
    assert len(failed) == 1
    assert not rendezvous._waiting


def gathered(group):
    return group.gather([group.rank + 1.0])


def exchanged(group):
    """Return what the other member has sent, and this one."""
    other, own, theirs = 1 - group.rank, torch.tensor([group.rank + 1.0]), torch.zeros(1)
    for transfer in (group.receive(theirs, other, 0), group.send(own, other, 0)):
        transfer.wait()
    return [part.tolist() for part in ((own, theirs) if group.rank == 0 else (theirs, own))]


@pytest.mark.parametrize("operation", [gathered, exchanged])
def test_operations_have_longer_than_the_meeting(monkeypatch, operation):
    """One member comes to an operation after more than `BUILD_SECONDS`."""
    monkeypatch.setattr(group, "BUILD_SECONDS", 2.0)
    rendezvous = [Rendezvous(HOST, TOKEN) for _ in range(2)]
    members = tuple(member(f"w{rank}", each.port) for rank, each in enumerate(rendezvous))
    configuration = Configuration(ConfigId(1, 1), members, ())
    changed = threading.Condition()
    built = {}

    def build(rank):
        built[rank] = rendezvous[rank].build(configuration, f"w{rank}", changed)

    threads = [threading.Thread(target=build, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = built[0].submit(lambda: operation(built[0]))
    with changed:
        assert not changed.wait_for(lambda: first.done, 2.5)
    second = built[1].submit(lambda: operation(built[1]))
    with changed:
        changed.wait_for(lambda: first.done and second.done)
    assert first.value == second.value == [[1.0], [2.0]]
    for each in built.values():
        each.close()


def test_a_frozen_chief_does_not_keep_who_asks_for_the_epoch(monkeypatch):
    """It connects, and hears nothing: as TCPStore does, whatever its timeout."""
    monkeypatch.setattr(group, "_ASK_SECONDS", 0.1)
    rendezvous = Rendezvous(HOST, TOKEN)
    with listener() as silent:
        assert rendezvous.epoch_at(member("w0", silent.getsockname()[1])) == 0


def test_the_epoch_that_the_chief_has_told():
    chief, other = Rendezvous(HOST, TOKEN), Rendezvous(HOST, TOKEN)
    assert other.epoch_at(member("w0", chief.port)) == 0
    chief.tell_epoch(7)
    assert other.epoch_at(member("w0", chief.port)) == 7
