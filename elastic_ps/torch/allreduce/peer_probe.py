"""A `PeerProbe` finds out which members a worker cannot reach: gloo waits for them without a word, for an hour."""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence

from elastic_ps.core.configuration import Member, NodeId

log = logging.getLogger(__name__)

_TRIES = 2
"""So often in a row a member must not answer."""


class PeerProbe:
    """A `PeerProbe` tries to connect to the stores of those for whom this worker waits, again and again.

    It greets nobody: that a member's machine answers is enough. Its lease shows whether its process runs.

    Args:
        awaited: returns the members for whom this worker waits now.
    """

    def __init__(self, awaited: Callable[[], Sequence[Member]]):
        self._awaited = awaited
        self._failed: dict[NodeId, int] = {}  # by member, tries in a row
        self._apart: dict[NodeId, str] = {}

    @property
    def apart(self) -> Mapping[NodeId, str]:
        """Why the last try failed, by member that cannot be reached."""
        return self._apart

    def run(self, seconds: float, closes_within: Callable[[float], bool]) -> None:
        """Look every so often until this worker ends.

        Args:
            seconds: between two looks, and for which a member may take to answer.
            closes_within: waits for this worker's end; returns whether it has come within some seconds.
        """
        while not closes_within(seconds):
            self.look(seconds)

    def look(self, seconds: float) -> None:
        """Try once; who answers, or is not waited for any more, is not apart."""
        failed, apart = {}, {}
        for member in self._awaited():
            why = _try_to_reach(member, seconds)
            if why:
                failed[member.id] = self._failed.get(member.id, 0) + 1
                if failed[member.id] >= _TRIES:
                    apart[member.id] = why
        self._failed, self._apart = failed, apart


def _try_to_reach(member: Member, seconds: float) -> str:
    """Connect to a member's store; return why that fails, "": it does not."""
    try:
        socket.create_connection((member.host, member.port), seconds).close()
    except (OSError, UnicodeError) as error:  # the latter of a name that is no host's
        return str(error) or type(error).__name__
    return ""
