"""Nodes that have no network namespace in common meet in a folder."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.transport import shm_rendezvous, shm_transport
from elastic_ps.transport.choice import FOLDER, AutoTransport, TransportName, TransportSettings
from elastic_ps.transport.shared_memory import Image
from elastic_ps.transport.shm_transport import ShmTransport
from tests.elastic_ps.transport.wiring import TOKEN, Aside, meet, numbered, take


@pytest.fixture
def made():
    """What is closed at the end."""
    found = []
    yield found
    for one in found:
        one.close()


def listening(folder, made):
    listener = AutoTransport(TOKEN, folder=str(folder)).listen("127.0.0.1")
    made.append(listener)
    return listener


def met(listener, folder):
    """(connected, accepted)."""
    return meet(lambda: AutoTransport(TOKEN, folder=str(folder)).connect(*listener.address, "s0"), listener)


def left_by_a_killed_server(folder):
    """A socket's file whose process is gone."""
    path = folder / ("0" * 32)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    return path


def test_who_has_the_folder_shares_memory_and_nothing_is_left_in_it(tmp_path, made):
    listener = listening(tmp_path, made)
    connected, accepted = met(listener, tmp_path)
    made += [connected, accepted]
    image = Image(100)
    accepted.share(image, ())
    accepted.send(numbered(1))
    take(connected)
    connected.shared[0].array[3] = 7
    assert (connected.kind, connected.reason, image.array[3]) == ("shm", "", 7)
    assert [path.is_socket() for path in tmp_path.iterdir()] == [True]
    listener.close()
    assert list(tmp_path.iterdir()) == []


def test_who_has_another_folder_takes_tcp(tmp_path, made):
    listener = listening(tmp_path, made)
    other = tmp_path / "other"
    other.mkdir()
    connected, accepted = met(listener, other)
    made += [connected, accepted]
    assert (connected.kind, connected.reason.endswith(f": not on this host (looked in {other})")) == ("tcp", True)
    with pytest.raises(PeerLost, match="not on this host"):
        ShmTransport(TOKEN, folder=str(other)).connect(*listener.address, "s0")


def test_what_a_killed_server_left_is_taken_away_and_the_living_stay(tmp_path, made):
    dead = left_by_a_killed_server(tmp_path)
    first = listening(tmp_path, made)
    assert not dead.exists()
    dead = left_by_a_killed_server(tmp_path)
    listening(tmp_path, made).close()
    assert not dead.exists()
    connected, accepted = met(first, tmp_path)
    made += [connected, accepted]
    assert accepted.kind == "shm"


def test_other_files_stay(tmp_path, made):
    (tmp_path / ("f" * 32)).write_text("x")
    (tmp_path / "a").mkdir()
    listening(tmp_path, made).close()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder.write_text("no folder"), "is not there"),
        (lambda folder: folder.mkdir(0o555), "cannot write to the folder"),
    ],
)
def test_without_a_folder_to_write_to_it_is_tcp_with_the_reason(tmp_path, made, monkeypatch, make, reason):
    monkeypatch.setattr(os, "access", lambda path, _how: bool(os.stat(path).st_mode & 0o200))  # tests run as root
    monkeypatch.setattr(socket, "socket", _refusing(str(tmp_path / "x")))
    make(tmp_path / "x")
    listener = listening(tmp_path / "x", made)
    connected, accepted = met(listener, tmp_path / "x")
    made += [connected, accepted]
    assert connected.kind == "tcp"
    assert reason in connected.reason


def _refusing(folder):
    class Refused(socket.socket):
        def bind(self, address):
            if isinstance(address, str) and os.path.dirname(os.path.realpath(address)) == folder:
                raise PermissionError(13, "Permission denied")
            super().bind(address)

    return Refused


def test_a_folder_may_have_a_name_that_is_too_long_for_a_socket(tmp_path, made):
    folder = tmp_path / ("x" * 90)
    folder.mkdir()
    connected, accepted = met(listening(folder, made), folder)
    made += [connected, accepted]
    assert connected.kind == "shm"


def test_no_name_is_in_the_abstract_namespace_which_is_open_to_all(tmp_path, made, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    listener = listening("", made)
    connected, accepted = met(listener, "")
    made += [connected, accepted]
    assert connected.kind == "shm"
    assert (tmp_path / "elastic_ps").stat().st_mode & 0o777 == 0o700
    assert len(list((tmp_path / "elastic_ps").iterdir())) == 1
    bound = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@elastic_ps" in line}
    assert bound == set()


def test_a_folder_of_ones_own_that_others_may_enter_is_not_used(tmp_path, made, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "elastic_ps").mkdir()
    (tmp_path / "elastic_ps").chmod(0o755)
    connected, accepted = met(listening("", made), "")
    made += [connected, accepted]
    assert connected.kind == "tcp"
    assert "chmod 700" in connected.reason


def test_only_this_user_and_root_may_be_at_the_other_end(monkeypatch):
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        shm_rendezvous.check_user(one)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        monkeypatch.setattr(shm_rendezvous, "_ROOT", -1)
        with pytest.raises(shm_rendezvous.UnsafePeer, match="of user 12345"):
            shm_rendezvous.check_user(one)


@pytest.mark.parametrize("end", [shm_rendezvous, shm_transport], ids=["who connects", "who listens"])
def test_another_user_at_the_other_end_is_sent_away_before_anything_is_said(tmp_path, made, monkeypatch, end):
    def another(_sock):
        raise shm_rendezvous.UnsafePeer("a process of another user is at the other end")

    listener = listening(tmp_path, made)
    monkeypatch.setattr(end, "check_user", another)
    connecting = Aside(ShmTransport(TOKEN, folder=str(tmp_path)).connect, *listener.address, "s0")
    accepted = listener.accept()
    with pytest.raises((PeerLost, ProtocolError), match=r"another user|closed|reset|Broken pipe"):
        accepted.greet(20)
    accepted.close()
    with pytest.raises(PeerLost, match=r"another user|closed|reset|Broken pipe"):
        connecting.result()


def test_the_environment_says_where(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, f"{tmp_path}/")
    assert TransportSettings().make(TOKEN).rendezvous.name("h", 1).startswith(f"{tmp_path}/")
    assert TransportSettings(TransportName.TCP).make(TOKEN)
    monkeypatch.delenv(FOLDER)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert TransportSettings().make(TOKEN).rendezvous.name("h", 1).startswith(f"{tmp_path}/elastic_ps/")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert TransportSettings().make(TOKEN).rendezvous.name("h", 1).startswith(f"{tmp_path}/elastic_ps/sockets/")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", "~/state")
    assert TransportSettings().make(TOKEN).rendezvous.name("h", 1).startswith(f"{tmp_path}/home/state/elastic_ps/")


def test_hosts_that_share_a_home_leave_each_others_sockets_alone(tmp_path, made, monkeypatch):
    """A server took away those of another host, which look dead there: that host's workers then took TCP."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(shm_rendezvous, "boot_id", lambda: "host-a")
    listener = listening("", made)
    monkeypatch.setattr(shm_rendezvous, "boot_id", lambda: "host-b")
    with monkeypatch.context() as there:
        there.setattr(shm_rendezvous, "_is_dead", lambda path: True)
        listening("", made).close()
    with pytest.raises(PeerLost, match=r"not on this host \(looked in .*/elastic_ps/sockets/host-b\)"):
        ShmTransport(TOKEN).connect(*listener.address, "s0")
    monkeypatch.setattr(shm_rendezvous, "boot_id", lambda: "host-a")
    connected, accepted = met(listener, "")
    made += [connected, accepted]
    assert (connected.kind, accepted.kind) == ("shm", "shm")


def test_where_a_user_has_no_home_peers_meet_by_tcp_and_nothing_is_made(tmp_path, monkeypatch, caplog):
    def nobody_knows(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.chdir(tmp_path)
    for name in (FOLDER, "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", nobody_knows)
    transport = ShmTransport(TOKEN)
    with caplog.at_level("WARNING"), closing(transport.listen("127.0.0.1")) as listener:
        with pytest.raises(PeerLost, match="this user has no home directory"):
            transport.connect(*listener.address, "s0")
        connecting = Aside(transport.tcp.connect, *listener.address, "s0")
        accepted = listener.accept()
        accepted.greet(20)
        accepted.close()
        connecting.result().close()
    assert not caplog.records
    assert not list(tmp_path.iterdir())
