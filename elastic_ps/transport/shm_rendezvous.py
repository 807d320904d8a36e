"""This module lets processes of one host that share memory find one another, by the Unix socket of a server."""

import errno
import hashlib
import os
import secrets
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.process.proc_stat import boot_id
from elastic_ps.system.state_folder import state_folder

_BACKLOG = 128
_NAME_CHARACTERS = 32
_NOBODY = (errno.ENOENT, errno.ECONNREFUSED)
_CREDENTIALS = struct.Struct("3i")  # of struct ucred: process, user, group
_ROOT = 0


class ShmRendezvous:
    """A `ShmRendezvous` is a folder of sockets, named after the job's token and the address of a server.

    Without a folder that is given it is one of this user's own on this host, which nobody else may enter. Containers,
    whose network and files are of their own, meet in a folder of their host that all of them have mounted; only sockets
    lie there, and no memory. Wherever they meet, both ends look which user the other one is, and then greet
    (`greeting`).

    Args:
        token: the job's.
        folder: that they meet in; "": the user's own.
    """

    def __init__(self, token: bytes, folder: str = ""):
        self._token, self._given = token, folder
        self._folder = folder or own_folder()

    @property
    def is_nowhere(self) -> bool:
        """Return whether there is no place to meet, as of a container's user who has no home."""
        return not self._folder

    def name(self, host: str, port: int) -> str:
        """Return the path of the socket of the server that peers of this job reach at (host, port)."""
        made = hashlib.sha256(self._token + f"{host} {port}".encode()).hexdigest()[:_NAME_CHARACTERS]
        return f"{self._folder}/{made}"

    def listen(self, host: str, port: int) -> socket.socket:
        """Return the socket of a server. Raises OSError: the folder cannot be used, or another server's lies there."""
        if not self._given:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._sweep()
        local = socket.socket(socket.AF_UNIX)
        try:
            with _Entered(self._folder, private=not self._given) as place:
                name = f"{place}/{Path(self.name(host, port)).name}"
                if os.path.lexists(name):
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
                made = f"{place}/{secrets.token_hex(_NAME_CHARACTERS // 2)}"  # is swept as others are
                local.bind(made)
                local.listen(_BACKLOG)
                os.rename(made, name)  # who finds it is heard
        except OSError:
            local.close()
            raise
        return local

    def connect(self, host: str, port: int, timeout: float) -> socket.socket:
        """Return a socket to the server there, which is this user's.

        Args:
            host: that the server is reached at.
            port: that the server is reached at.
            timeout: seconds to connect in.

        Raises:
            OSError: nobody is there, or another user.
        """
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(timeout)
        try:
            with _Entered(self._folder, private=not self._given) as place:
                local.connect(f"{place}/{Path(self.name(host, port)).name}")
            check_user(local)
        except OSError:
            local.close()
            raise
        return local

    def leave(self, host: str, port: int) -> None:
        """Take a server's file away, and those of servers that could not."""
        with suppress(OSError):
            os.unlink(self.name(host, port))
        self._sweep()

    def why(self, error: OSError) -> str:
        """Return what an error of listening or connecting means."""
        if isinstance(error, UnsafePeer):
            return str(error)
        if self.is_nowhere:
            return "this user has no home directory, and neither XDG_RUNTIME_DIR nor XDG_STATE_HOME names a folder"
        if not os.path.isdir(self._folder):
            return f"the folder {self._folder} is not there"
        if not os.access(self._folder, os.W_OK | os.X_OK):
            return f"user {os.getuid()} cannot write to the folder {self._folder}"
        return f"not on this host (looked in {self._folder})" if error.errno in _NOBODY else f"{self._folder}: {error}"

    def _sweep(self) -> None:
        """Take away what killed servers have left."""
        with suppress(OSError), _Entered(self._folder, private=not self._given) as place:
            for path in Path(place).iterdir():
                if len(path.name) == _NAME_CHARACTERS and path.is_socket() and _is_dead(path):
                    path.unlink()


class UnsafePeer(OSError):
    """Another user is at the other end, or could be."""


def check_user(local: socket.socket) -> None:
    """Look at who is at the other end of a connected Unix socket: this user, or root.

    Raises:
        UnsafePeer: it is another user.
    """
    _, user, _ = _CREDENTIALS.unpack(local.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user not in (os.geteuid(), _ROOT):
        raise UnsafePeer(f"a process of user {user} is at the other end, and this one is of user {os.geteuid()}")


def own_folder() -> str:
    """Return the folder in which the sockets of this user's processes lie; "": nobody knows of one.

    Hosts may share a home: each has a folder of its own there, as a socket of another host looks like a dead one's.
    """
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    if run and os.path.isdir(run) and os.access(run, os.W_OK | os.X_OK):
        return f"{run}/elastic_ps"
    try:
        folder = state_folder() / "elastic_ps" / "sockets"
    except ConfigurationError:
        return ""
    with suppress(OSError):
        folder /= boot_id()
    return str(folder)


class _Entered:
    """An `_Entered` is a folder that has been looked at: its path may be moved or replaced meanwhile."""

    def __init__(self, folder: str, private: bool):
        self._folder, self._private = folder, private

    def __enter__(self) -> str:
        self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self._descriptor)
        if self._private and (found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077):
            os.close(self._descriptor)
            raise UnsafePeer(
                f"the folder {self._folder} is open to other users: `chmod 700` it, or let XDG_RUNTIME_DIR name another"
            )
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _is_dead(path: Path) -> bool:
    """Return whether no process has this socket. One that has it is not disturbed: the probe is of another type."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED
