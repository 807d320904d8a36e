"""What TCP does beyond the contract."""

import errno
import socket

import pytest
from wiring import TOKEN

from elastic_ps.transport.tcp import TcpListener


class Exhausted(socket.socket):
    """A listening socket of a process that has no file descriptors left."""

    def accept(self):
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_listener_in_trouble_is_not_taken_for_a_closed_one():
    sock = Exhausted(socket.AF_INET)
    sock.bind(("127.0.0.1", 0))
    listener = TcpListener(sock, TOKEN)
    with pytest.raises(OSError, match="Too many open files"):
        listener.accept()
    listener.close()
