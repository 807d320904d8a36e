"""This module says how many file descriptors a process may have, and what to do where there are none left."""

import errno
import os
import resource
import socket
from contextlib import suppress

_MOST = 65_536

SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What a call fails with that needs a descriptor, or memory of the kernel's, where there is none."""


def raise_limit() -> None:
    """Let this process have as many descriptors as the system allows it, so that strangers do not use up its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(_MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def how_to_have_more() -> str:
    """Return how this process may have more descriptors, for people."""
    return f"it may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} file descriptors: raise `ulimit -n`"


class Spare:
    """A `Spare` keeps one descriptor in reserve, to turn a newcomer away when all others are used."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._take()

    def _take(self) -> None:
        try:
            self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = None

    def turn_away(self, listening: socket.socket) -> None:
        """Close the connection that waits first: else a listener would be woken by it again and again."""
        self.close()
        with suppress(OSError):  # it has gone by itself
            listening.accept()[0].close()
        self._take()

    def close(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
