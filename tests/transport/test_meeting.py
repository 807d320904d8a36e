"""Nodes that have no network namespace in common meet in a folder."""

import os
import socket

import pytest
from wiring import TOKEN, numbered, take

from elastic_ps.core.errors import PeerLost
from elastic_ps.transport.choice import FOLDER, AutoTransport, TransportName, TransportSettings
from elastic_ps.transport.image import Image
from elastic_ps.transport.shm import ShmTransport


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


def left_by_a_killed_server(folder):
    """A socket's file whose process is gone."""
    path = folder / ("0" * 32)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    return path


def test_who_has_the_folder_shares_memory_and_nothing_is_left_in_it(tmp_path, made):
    listener = listening(tmp_path, made)
    connected = AutoTransport(TOKEN, folder=str(tmp_path)).connect(*listener.address, "s0")
    accepted = listener.accept()
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
    connected = AutoTransport(TOKEN, folder=str(other)).connect(*listener.address, "s0")
    made += [connected, listener.accept()]
    assert (connected.kind, connected.reason.endswith(": not on this host")) == ("tcp", True)
    with pytest.raises(PeerLost, match="not on this host"):
        ShmTransport(TOKEN, folder=str(other)).connect(*listener.address, "s0")


def test_what_a_killed_server_left_is_taken_away_and_the_living_stay(tmp_path, made):
    dead = left_by_a_killed_server(tmp_path)
    first = listening(tmp_path, made)
    assert not dead.exists()
    dead = left_by_a_killed_server(tmp_path)
    listening(tmp_path, made).close()
    assert not dead.exists()
    made.append(AutoTransport(TOKEN, folder=str(tmp_path)).connect(*first.address, "s0"))
    accepted = first.accept()
    made.append(accepted)
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
    connected = AutoTransport(TOKEN, folder=str(tmp_path / "x")).connect(*listener.address, "s0")
    made += [connected, listener.accept()]
    assert connected.kind == "tcp"
    assert reason in connected.reason


def _refusing(folder):
    class Refused(socket.socket):
        def bind(self, address):
            if isinstance(address, str) and address.startswith(folder):
                raise PermissionError(13, "Permission denied")
            super().bind(address)

    return Refused


def test_a_name_that_is_too_long_says_so(tmp_path, made):
    folder = tmp_path / ("x" * 90)
    folder.mkdir()
    listener = listening(folder, made)
    connected = AutoTransport(TOKEN, folder=str(folder)).connect(*listener.address, "s0")
    made += [connected, listener.accept()]
    assert "too long" in connected.reason


def test_the_environment_says_where(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, f"{tmp_path}/")
    assert TransportSettings().make(TOKEN).meeting.name("h", 1).startswith(f"{tmp_path}/")
    assert TransportSettings(TransportName.TCP).make(TOKEN)
    monkeypatch.delenv(FOLDER)
    assert TransportSettings().make(TOKEN).meeting.name("h", 1).startswith("\0")
