"""`StateSnapshots` takes the SNAPSHOT frames for a worker that has asked for the optimizer's state."""

from collections.abc import Iterator, Set

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import members
from elastic_ps.transport.frame_metas import SnapshotMeta
from elastic_ps.transport.frames import Frame


class StateSnapshots:
    """`StateSnapshots` has the answers to the latest request. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._request = 0
        self._have: set[int] = set()
        self._taken: list[tuple[Frame, bytearray]] = []
        self._receiving: dict[NodeId, bytearray] = {}

    def begin(self) -> int:
        """Forget the answers to earlier requests; returns the number of the new one."""
        self._request += 1
        self._have.clear()
        self._taken.clear()
        return self._request

    def buffer(self, server: NodeId, frame: Frame) -> bytearray:
        """Return where to receive a frame's payload."""
        self._receiving[server] = bytearray(frame.payload_bytes)
        return self._receiving[server]

    def arrived(self, server: NodeId, frame: Frame) -> None:
        """Take a frame that is complete; it counts where it answers the latest request."""
        data = self._receiving.pop(server) if frame.payload_bytes else bytearray()
        if frame.of(SnapshotMeta).request == self._request:
            self._taken.append((frame, data))
            self._have.update(members(frame.runs))

    def complete(self, blocks: Set[int]) -> bool:
        """Return whether all these blocks have come."""
        return blocks <= self._have

    def lacking(self, blocks: Set[int]) -> Set[int]:
        """Return those of these blocks that have not come."""
        return blocks - self._have

    def taken(self) -> Iterator[tuple[Frame, bytearray]]:
        """Yield the frames, once; their memory is the caller's now."""
        taken, self._taken = self._taken, []
        yield from taken
