"""This module knows whom a node waits for and cannot reach (docs/reference/protocol.md, "Who is waited for"). Pure.

A node looks at its connections and at what it lacks several times a second; nothing is counted where tensors travel.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elastic_ps.core.configuration import NodeId

_LEAST_PATIENCE = 1.0
_OPENING_SECONDS = 1.0
_TAKING = "to take what is being sent to it"
_GAP = 0.5
"""This part of the patience may pass between two looks: after a longer gap this node has been away itself."""


def patience(lease: float) -> float:
    """Return for how many seconds a peer may leave a node without what it awaits; `lease`: of a node, in seconds."""
    return max(_LEAST_PATIENCE, lease / 2)


class PeerChannel(Protocol):
    """A `PeerChannel` is a connection to a peer, as `transport.send_queue.Link` is one."""

    peer: NodeId

    @property
    def signs(self) -> tuple[int, int, bool]:
        """The bytes that have come, the bytes that it has taken to send, and whether a probe waits behind others."""

    @property
    def backlog(self) -> int:
        """The payload bytes that it has not taken yet."""

    def probe(self) -> None:
        """Ask the peer for a sign of life."""


@dataclass(frozen=True)
class Awaited:
    """An `Awaited` is what a node lacks from a peer.

    Attributes:
        peer: who is to give it.
        what: for people; a new text is a new wait.
        progress: as long as it changes the peer is at work.
    """

    peer: NodeId
    what: str
    progress: Hashable = None


@dataclass(frozen=True)
class PeerView:
    """A `PeerView` shows a node's connections and what it lacks, at one moment.

    Attributes:
        channels: the open connections.
        awaited: what it lacks from peers.
        apart: by peer to whom there should be a connection and is none: why the last try failed; "": under way.
    """

    channels: Sequence[PeerChannel] = ()
    awaited: Sequence[Awaited] = ()
    apart: Mapping[NodeId, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PeerWait:
    """A `PeerWait` names a peer that a node waits for too long, or cannot reach.

    Attributes:
        peer: who.
        what: for people: what is awaited.
        since: when that began, on the clock of `PeerWatch.look`.
        unreachable: the peer's process does not answer; False: it does, and what is awaited has not come.
    """

    peer: NodeId
    what: str
    since: float
    unreachable: bool


@dataclass
class _Pulse:
    """A `_Pulse` is what is known of a connection's other end: signs of life, and since when a probe is on its way."""

    received: int
    sent: int = 0
    behind: bool = False
    asked: float | None = None


class PeerWatch:
    """A `PeerWatch` says what a node reports of its peers. It is not thread-safe.

    Args:
        seconds: its patience, see `patience`.
    """

    def __init__(self, seconds: float):
        self._patience = seconds
        self._looked: float | None = None
        self._pulses: dict[PeerChannel, _Pulse] = {}
        self._awaited: dict[tuple[NodeId, str], tuple[Hashable, float]] = {}
        self._apart: dict[NodeId, float] = {}
        self._named: dict[NodeId, PeerWait] = {}

    @property
    def named(self) -> Sequence[PeerWait]:
        """The peers that are waited for too long or cannot be reached, one wait for each; the mended are not named."""
        return list(self._named.values())

    @property
    def unreachable(self) -> frozenset[NodeId]:
        """The peers that cannot be reached."""
        return frozenset(peer for peer, wait in self._named.items() if wait.unreachable)

    def look(self, now: float, seen: PeerView) -> bool:
        """Look at the connections and at what is lacking, and probe who has been silent since the last time.

        Args:
            now: seconds of a clock that only goes forward.
            seen: how things are.

        Returns:
            False where this node has been away itself (its process was stopped, or its machine): what it has waited for
            in the meantime is nobody's fault, and every wait begins anew.
        """
        away = self._looked is not None and now - self._looked > max(_LEAST_PATIENCE, _GAP * self._patience)
        if away:
            self._pulses, self._awaited, self._apart = {}, {}, {}
        self._looked = now
        taking = [Awaited(each.peer, _TAKING, each.signs[1]) for each in seen.channels if each.backlog]
        found = (
            self._waiting(now, [*seen.awaited, *taking]) + self._disconnected(now, seen.apart) + self._silent(now, seen)
        )
        self._named = {wait.peer: wait for wait in found}  # the last counts: who is cut off gives nothing either
        return not away

    def _waiting(self, now: float, awaited: Sequence[Awaited]) -> list[PeerWait]:
        before, self._awaited = self._awaited, {}
        for one in awaited:
            progress, since = before.get((one.peer, one.what), (one.progress, now))
            self._awaited[one.peer, one.what] = one.progress, since if progress == one.progress else now
        late = [
            PeerWait(peer, what, since, unreachable=False)
            for (peer, what), (_, since) in self._awaited.items()
            if now - since > self._patience
        ]
        return sorted(late, key=lambda wait: wait.since, reverse=True)

    def _disconnected(self, now: float, apart: Mapping[NodeId, str]) -> list[PeerWait]:
        self._apart = {peer: self._apart.get(peer, now) for peer in apart}
        return [
            PeerWait(peer, f"a connection: {apart[peer] or 'no answer yet'}", since, unreachable=True)
            for peer, since in self._apart.items()
            if now - since > (_OPENING_SECONDS if apart[peer] else self._patience)
        ]

    def _silent(self, now: float, seen: PeerView) -> list[PeerWait]:
        self._pulses = {channel: self._pulse(now, channel) for channel in seen.channels}
        return [
            PeerWait(channel.peer, "a sign of life", pulse.asked, unreachable=True)
            for channel, pulse in self._pulses.items()
            if pulse.asked is not None and now - pulse.asked > self._patience
        ]

    def _pulse(self, now: float, channel: PeerChannel) -> _Pulse:
        received, sent, behind = channel.signs
        pulse = self._pulses.get(channel)
        if pulse is None or received != pulse.received:
            return _Pulse(received)
        if pulse.asked is None:
            channel.probe()
            return _Pulse(received, sent, behind=True, asked=now)
        gone = pulse.behind and (not behind or sent != pulse.sent)  # the probe just now, or some of what is before it
        return _Pulse(received, sent, behind, now if gone else pulse.asked)
