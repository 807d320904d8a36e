"""The one interface behind which every transport stands."""

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import NDArray

from elastic_ps.transport.frames import Frame

Buffer = memoryview | NDArray  # type: ignore[type-arg]  # any contiguous array


def flat(buffer: Buffer) -> memoryview:
    """The bytes of a buffer, not copied.

    Raises:
        TypeError: it is not contiguous.
    """
    view = memoryview(buffer)  # type: ignore[arg-type]  # numpy arrays are buffers
    return view.cast("B") if view.nbytes else memoryview(b"")  # a shape with a zero in it cannot be cast


class Connection(Protocol):
    """A two-way stream of frames to one peer. One thread may send while another receives."""

    @property
    def peer(self) -> str:
        """The peer's name, for errors and logs."""

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Send one frame; returns when the payload's memory may be changed again.

        Raises:
            PeerLost: the connection is broken.
        """

    def receive(self) -> Frame:
        """Wait for the next frame. Its payload must be taken by `receive_into` before the next `receive`.

        Raises:
            PeerLost: the connection is broken or closed.
            ProtocolError: the peer does not speak the protocol or shows another token.
        """

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """Fill `buffers`, which together have the frame's `payload_bytes`."""

    def close(self) -> None:
        """Break the connection; a blocked `receive` on either side raises PeerLost."""


class Listener(Protocol):
    """Where peers connect to."""

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) to give to peers."""

    def accept(self) -> Connection:
        """Wait for a peer. Raises PeerLost once the listener is closed."""

    def close(self) -> None:
        """Stop listening."""


class Transport(Protocol):
    """Makes connections; knows the job's token."""

    def listen(self, host: str, port: int = 0) -> Listener:
        """Listen on `host`; port 0 takes a free one."""

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> Connection:
        """Connect to a peer that listens. Raises PeerLost."""
