"""This module plays faults, as a test scripts them, on the frames that pass between nodes in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Event, RLock
from typing import Any

from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frames import Frame


class FaultAction(Enum):
    """A `FaultAction` says what a fault does to the frames that it strikes."""

    HOLD = auto()  # kept until `FrameFault.release`
    DROP = auto()
    DUPLICATE = auto()
    REVERSE = auto()  # kept until the last one comes, then delivered last first
    CUT = auto()  # half of the frame's bytes arrive, then the connection is broken


@dataclass
class FrameFault:
    """A `FrameFault` strikes frames that match, and no others.

    Args:
        action: what it does.
        kind: of the frames.
        sender: name of the transport that they come from; empty: any.
        receiver: name of the transport that they go to; empty: any.
        version: of the frames; None: any.
        skip: matching frames that pass before the first that is struck.
        times: frames to strike; it has fired when all have come.
    """

    action: FaultAction
    kind: Kind
    sender: str = ""
    receiver: str = ""
    version: int | None = None
    skip: int = 0
    times: int = 1
    fired: Event = field(default_factory=Event, repr=False)
    _struck: int = field(default=0, repr=False)
    _kept: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _lock: Any = field(default_factory=RLock, repr=False)  # an RLock, for which there is no type

    def release(self) -> None:
        """Deliver what is held, in order; frames that match later pass."""
        with self._lock:
            self._struck = self.times
            for deliver in self._kept:
                deliver()
            self._kept.clear()

    def strike(
        self, frame: Frame, sender: str, receiver: str, deliver: Callable[[], None], cut: Callable[[], None]
    ) -> bool:
        """Deal with a frame that passes; return False where this fault lets it be.

        Args:
            frame: that passes.
            sender: name of the transport that it comes from.
            receiver: name of the transport that it goes to.
            deliver: lets it arrive.
            cut: lets half of it arrive, and breaks the connection.
        """
        with self._lock:
            if self._struck == self.times or not self._matches(frame, sender, receiver):
                return False
            if self.skip:
                self.skip -= 1
                return False
            self._struck += 1
            self._act(deliver, cut)
            if self._struck == self.times:
                self.fired.set()
            return True

    def _matches(self, frame: Frame, sender: str, receiver: str) -> bool:
        ends = self.sender in ("", sender) and self.receiver in ("", receiver)
        return frame.kind is self.kind and ends and self.version in (None, frame.version)

    def _act(self, deliver: Callable[[], None], cut: Callable[[], None]) -> None:
        if self.action is FaultAction.CUT:
            cut()
        elif self.action is FaultAction.DUPLICATE:
            deliver()
            deliver()
        elif self.action is FaultAction.HOLD:
            self._kept.append(deliver)
        elif self.action is FaultAction.REVERSE:
            self._kept.insert(0, deliver)
            if self._struck == self.times:
                self.release()
