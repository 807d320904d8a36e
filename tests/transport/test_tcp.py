"""What TCP does beyond the contract."""

import errno
import socket

import pytest

from elastic_ps.transport.stream import SocketListener


class Exhausted(socket.socket):
    """A listening socket of a process that has no file descriptors left."""

    def accept(self):
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_listener_in_trouble_is_not_taken_for_a_closed_one():
    sock = Exhausted(socket.AF_INET)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    listener = SocketListener({sock: lambda _sock, _peer: pytest.fail("nobody came")}, sock.getsockname())
    with socket.create_connection(sock.getsockname()), pytest.raises(OSError, match="Too many open files"):
        listener.accept()
    listener.close()
