"""Frames that a server can neither serve nor refuse yet are held, and judged again whenever something changes."""

from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ProtocolError


@dataclass
class HeldFrame:
    """A `HeldFrame` waits for a configuration, a hand-over or first values.

    Attributes:
        again: judges it once more, under the lock.
        node: the worker who sent it.
        key: (node, kind, first run): the same frame sent again replaces it.
        nbytes: that it takes here.
    """

    again: Callable[[], None]
    node: NodeId
    key: object
    nbytes: int = 0


class HeldFrames:
    """`HeldFrames` are all that a server holds. Guarded by `ServerState.changed`."""

    def __init__(self) -> None:
        self._frames: list[HeldFrame] = []

    def __bool__(self) -> bool:
        return bool(self._frames)

    def hold(self, held: HeldFrame, most: int) -> None:
        """Keep a frame until something changes.

        Args:
            held: the frame.
            most: bytes of all that its sender may have here.

        Raises:
            ProtocolError: it has sent more.
        """
        others = [other for other in self._frames if other.key != held.key]
        size = held.nbytes + sum(other.nbytes for other in others if other.node == held.node)
        if size > most:
            raise ProtocolError(f"{held.node} sent {size} bytes that have to wait here, more than the {most} of a step")
        self._frames = [*others, held]

    def retry(self, dead: Set[NodeId], refuse: Callable[[NodeId, str], None]) -> None:
        """Judge everything again; what must wait longer is held anew, and behind an unexpected error what is left.

        Args:
            dead: nodes whose frames are dropped.
            refuse: tells a sender what is wrong with its frame: its fault, not that of the thread that happens to be
                here.
        """
        waiting, self._frames = deque(self._frames), []
        try:
            while waiting:
                held = waiting.popleft()
                if held.node in dead:
                    continue
                try:
                    held.again()
                except ProtocolError as error:
                    refuse(held.node, str(error))
        finally:
            self._frames += waiting
