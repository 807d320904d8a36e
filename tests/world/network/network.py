"""The world's network: connections that keep order, take time, and break as those of TCP do."""

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import Any

from tests.world.kernel.scheduler import DEAD, Process, Scheduler

CLOSED, RESET = "connection closed", "connection reset by peer"

UNACKNOWLEDGED_SECONDS = 10.0
"""After so long without an acknowledgement a connection breaks (TCP_USER_TIMEOUT)."""

_SILENT_SECONDS = 13.0
"""After so long one that sends nothing breaks: keepalive begins after 3 s (`elastic_ps.transport.stream`)."""

_SENT_AGAIN_SECONDS = 1.5


class Refused(Exception):
    """Nobody listens there, or nobody answers in time."""


class End:
    """An `End` is one process's end of a connection.

    Attributes:
        took: called with each item that arrives, in order; it must not wait.
        broke: called once, with the reason, when the connection has broken or the other end has closed it.
    """

    def __init__(self, network: "Network", process: Process):
        self.network, self.process = network, process
        self.other: End
        self.open = True
        self.severed = False  # what is under way is lost
        self.lasting = False  # it has no keepalive and no timeout: a silent way does not break it
        self.unread = 0  # bytes that it has sent and the other has not taken from its buffer
        self.took: Callable[[Any], None] = lambda item: None
        self.broke: Callable[[str], None] = lambda why: None
        self._arrives = 0.0  # when what was sent last does
        self._kept: deque[Any] = deque()  # what finds no way
        process.ends[self] = None

    def send(self, item: Any) -> None:
        """Send an item; it arrives after those before it, or the connection breaks."""
        if not self.open:
            return
        network, process, other = self.network, self.process, self.other.process
        if self._kept or network.is_blocked(process, other):
            if not self._kept:
                network.doubt(self, UNACKNOWLEDGED_SECONDS)
            self._kept.append(item)
        else:
            self._pass(item, network.latency(process, other))

    def _pass(self, item: Any, seconds: float) -> None:
        scheduler = self.network.scheduler
        when = scheduler.now + seconds
        if when > self._arrives:
            self._arrives = when
        scheduler.call_at(self._arrives, partial(self.other._arrive, item))

    def _arrive(self, item: Any) -> None:
        if self.open and self.process.state != DEAD and not self.severed:
            self.took(item)

    def is_late(self, soon: float) -> bool:
        """Return whether something that it has sent has not arrived by then."""
        return self._arrives > soon

    def flush(self) -> None:
        """Send what was kept: the way is free again, and TCP finds out after a while."""
        seconds = self.network.random.random() * _SENT_AGAIN_SECONDS
        while self._kept:
            self._pass(self._kept.popleft(), seconds)

    def close(self, why: str = CLOSED) -> None:
        """Close it; what was sent still arrives, and the other end hears of it then, where it can."""
        if self.open:
            self._forget()
            if not self.network.is_blocked(self.process, self.other.process):
                scheduler = self.network.scheduler
                when = max(self._arrives, scheduler.now + self.network.latency(self.process, self.other.process))
                scheduler.call_at(when, lambda: self.other.snap(why))

    def snap(self, why: str) -> None:
        """Break at this end alone."""
        if self.open:
            self._forget()
            self.broke(why)

    def _forget(self) -> None:
        self.open = False
        self._kept.clear()
        self.process.ends.pop(self, None)


class Network:
    """See the module.

    Args:
        scheduler: gives the time.
        random: draws delays.
        latency: seconds that a message takes, at least and at most.
        hosts: on which processes run that share memory; 0: none share any.
        retransmits: who has closed a connection while there was no way tells the other end when there is one again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        latency: tuple[float, float],
        hosts: int = 0,
        retransmits: bool = False,
    ):
        self.scheduler, self.random, self._retransmits = scheduler, random, retransmits
        self._latency, self._hosts = latency, hosts
        self._listening: dict[int, tuple[Process, Callable[[End], None]]] = {}
        self._blocked: dict[tuple[Process, Process], float] = {}  # from, to: since when
        self._slow: dict[tuple[Process, Process], float] = {}
        self._gone: dict[Process, float] = {}  # since when
        self._ports = 40_000

    # ---- for connections ---------------------------------------------------------------------------------------------

    def latency(self, source: Process, target: Process) -> float:
        """Return how long the next message takes."""
        low, high = self._latency
        drawn = low + self.random.random() * (high - low)
        return drawn + self._slow.get((source, target), 0.0) if self._slow else drawn

    def are_together(self, one: Process, other: Process) -> bool:
        """Return whether two processes can share memory."""
        return bool(self._hosts) and one.number % self._hosts == other.number % self._hosts

    def is_blocked(self, source: Process, target: Process) -> bool:
        """Return whether nothing passes from one process to another."""
        if self._blocked and (source, target) in self._blocked:
            return True
        return bool(self._gone) and not self._gone.keys().isdisjoint((source, target))

    def listen(self, process: Process, port: int, came: Callable[[End], None]) -> int:
        """Let `came` take the connections that are made to a port of a process; return the port.

        Raises:
            OSError: somebody listens there.
        """
        if port in self._listening:
            raise OSError(98, f"port {port} is in use")
        if not port:
            self._ports += 1
            port = self._ports
        self._listening[port] = process, came
        process.ports.add(port)
        return port

    def forget(self, port: int) -> None:
        """Take note that nobody listens there any more."""
        process, _ = self._listening.pop(port, (None, None))
        if process is not None:
            process.ports.discard(port)

    def connect(self, process: Process, port: int, timeout: float) -> End:
        """Connect a process to a port, in the present task.

        Raises:
            Refused: nobody listens there, or no answer comes within `timeout` seconds.
        """
        until = self.scheduler.now + timeout
        while True:
            found = self._listening.get(port)
            if found is None or not self._apart(process, found[0]):
                break
            if self.scheduler.now >= until:
                raise Refused("timed out")
            self.scheduler.park(min(1.0, until - self.scheduler.now + 0.001))
        target = found[0] if found is not None else process
        self.scheduler.park(self.latency(process, target) + self.latency(target, process))
        found = self._listening.get(port)
        if found is None:
            raise Refused("connection refused")
        near, far = End(self, process), End(self, found[0])
        near.other, far.other = far, near
        found[1](far)
        return near

    def dial(self, address: tuple[str, int], timeout: float) -> End:
        """See `socket.create_connection`."""
        try:
            return self.connect(self.scheduler.current.process, address[1], timeout)  # type: ignore[union-attr]
        except Refused as error:
            raise OSError(str(error)) from None

    def _apart(self, one: Process, other: Process) -> bool:
        return self.is_blocked(one, other) or self.is_blocked(other, one)

    def doubt(self, end: End, seconds: float) -> None:
        """Break an end in `seconds`, where it has had no acknowledgement all that time."""
        since = self._since(end)
        if end.lasting:
            return

        def judge() -> None:
            if end.open and since and self._since(end) == since:
                end.close("timed out")
                end.broke("timed out")

        self.scheduler.call_at(self.scheduler.now + seconds, judge)

    def _since(self, end: End) -> tuple[float, ...]:
        ways = ((end.process, end.other.process), (end.other.process, end.process))
        gone = tuple(self._gone[process] for process in ways[0] if process in self._gone)
        return gone + tuple(self._blocked[way] for way in ways if way in self._blocked)

    # ---- faults ------------------------------------------------------------------------------------------------------

    def ends_between(self, one: Process, other: Process) -> list[End]:
        """Return one's ends of its connections to another."""
        return [end for end in one.ends if end.other.process is other]

    def block(self, source: Process, target: Process) -> None:
        """Let nothing pass from one process to another."""
        self._blocked.setdefault((source, target), self.scheduler.now)
        for end in [*self.ends_between(source, target), *self.ends_between(target, source)]:
            self.doubt(end, _SILENT_SECONDS)

    def heal(self, source: Process, target: Process) -> None:
        """Let everything pass again."""
        if self._blocked.pop((source, target), None) is not None:
            for end in self.ends_between(source, target):
                end.flush()
            for end in self.ends_between(target, source) if self._retransmits else ():
                if not end.other.open:  # its kernel says so again and again
                    self.scheduler.call_at(self.scheduler.now + _SENT_AGAIN_SECONDS, partial(end.snap, RESET))

    def slow(self, source: Process, target: Process, seconds: float) -> None:
        """Let each message take so much longer; 0: not any more."""
        self._slow[source, target] = seconds

    def vanish(self, process: Process) -> None:
        """Let nothing pass to or from a process any more; what is under way is lost, and nobody is told."""
        self._gone[process] = self.scheduler.now
        for end in process.ends:
            end.severed = end.other.severed = True
            self.doubt(end.other, _SILENT_SECONDS)

    def troubled(self, among: Collection[Process]) -> bool:
        """Return whether some of these cannot reach each other, or only slowly, or something that was is on its way."""
        ways = [*self._blocked, *(way for way, seconds in self._slow.items() if seconds)]
        if any(source in among and target in among for source, target in ways):
            return True
        soon = self.scheduler.now + self._latency[1]
        return any(end.is_late(soon) and end.other.process in among for process in among for end in process.ends)

    def reset(self, one: Process, other: Process) -> int:
        """Break every connection between two processes, with what is on its way; return how many there were."""
        ends = self.ends_between(one, other)
        for end in ends:
            end.snap(RESET)
            end.other.snap(RESET)
        return len(ends)

    def died(self, process: Process) -> None:
        """Close what a process that has ended leaves behind, as its kernel does."""
        for port in list(process.ports):
            self.forget(port)
        for end in list(process.ends):
            end.close(self.random.choice((CLOSED, RESET)))
