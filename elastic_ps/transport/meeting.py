"""Where processes of one host that share memory find one another: the Unix socket of a server."""

import errno
import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

_BACKLOG = 128
_NAME_CHARACTERS = 32
_NOBODY = (errno.ENOENT, errno.ECONNREFUSED)


class Meeting:
    """The sockets' names are made of the job's token and of the address that a server is reached at.

    Without a folder they are in the kernel's abstract namespace: they end with the process and leave no file, and each
    network namespace has its own. Containers with network namespaces of their own meet in a folder of their host that
    all of them have mounted; only sockets lie there, and no memory.

    Args:
        token: the job's.
        folder: that they meet in; "": none.
    """

    def __init__(self, token: bytes, folder: str = ""):
        self._token, self._folder = token, folder

    def name(self, host: str, port: int) -> str:
        """Of the socket of the server that peers of this job reach at (host, port)."""
        made = hashlib.sha256(self._token + f"{host} {port}".encode()).hexdigest()[:_NAME_CHARACTERS]
        return f"{self._folder}/{made}" if self._folder else f"\0elastic_ps/{made}"

    def listen(self, host: str, port: int) -> socket.socket:
        """The socket of a server. Raises OSError: the folder cannot be used."""
        self._sweep()
        local = socket.socket(socket.AF_UNIX)
        try:
            local.bind(self.name(host, port))
            local.listen(_BACKLOG)
        except OSError:
            local.close()
            raise
        return local

    def leave(self, host: str, port: int) -> None:
        """Take a server's file away, and those of servers that could not."""
        if self._folder:
            with suppress(OSError):
                os.unlink(self.name(host, port))
            self._sweep()

    def why(self, error: OSError) -> str:
        """What an error of listening or connecting means."""
        if not self._folder:
            return "not on this host, or in another network namespace"
        if not os.path.isdir(self._folder):
            return f"the folder {self._folder} is not there"
        if not os.access(self._folder, os.W_OK | os.X_OK):
            return f"user {os.getuid()} cannot write to the folder {self._folder}"
        return "not on this host" if error.errno in _NOBODY else f"{self._folder}: {error}"

    def _sweep(self) -> None:
        """Take away what killed servers have left."""
        if not self._folder:
            return
        with suppress(OSError):
            for path in Path(self._folder).iterdir():
                if len(path.name) == _NAME_CHARACTERS and path.is_socket() and _is_dead(path):
                    path.unlink()


def _is_dead(path: Path) -> bool:
    """Whether no process has this socket. One that has it is not disturbed: it is of another type."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED
