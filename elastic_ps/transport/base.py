"""This module has the one interface behind which every transport stands."""

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import NDArray

from elastic_ps.core.segments import Raw
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image

Buffer = memoryview | NDArray  # type: ignore[type-arg]  # any contiguous array


def flat(buffer: Buffer) -> memoryview:
    """Return the bytes of a buffer, not copied.

    Raises:
        TypeError: it is not contiguous.
    """
    view = memoryview(buffer)  # type: ignore[arg-type]  # numpy arrays are buffers
    return view.cast("B") if view.nbytes else memoryview(b"")  # a shape with a zero in it cannot be cast


class Connection(Protocol):
    """A `Connection` is a two-way stream of frames to one peer. One thread may send while another receives."""

    @property
    def peer(self) -> str:
        """The peer's name, for errors and logs."""

    @property
    def kind(self) -> str:
        """The name of the transport."""

    @property
    def reason(self) -> str:
        """Why it is not the transport that was tried first; empty: it is."""

    @property
    def moved(self) -> tuple[int, int]:
        """The bytes that came over it, and that it has taken to send: while the first grows its peer lives."""

    @property
    def shared(self) -> Sequence[Image]:
        """The memory that both ends see: what `share` was given at one of them; none where nothing is shared."""

    def greet(self, seconds: float) -> None:
        """Let the peer prove that it is of this job, and prove it to the peer; who accepts calls it first.

        Raises:
            ProtocolError: the peer is of no or another job.
            PeerLost: it does not say in time, or is gone.
        """

    def share(self, writable: Image, readable: Sequence[Image]) -> None:
        """Let the peer see images, and write to the first, from the next frame on; where the transport can."""

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Send one frame; returns when the payload's memory may be changed again.

        A payload that lies in shared memory does not travel: its places go in the frame's "at", as [number of the
        image, first byte, bytes] of each buffer. It must stay as it is until the peer has used it.

        Raises:
            PeerLost: the connection is broken.
        """

    def offer(self, frame: Frame, payload: Sequence[Buffer] = ()) -> bool:
        """Send a small frame if that takes no waiting; return whether it is sent: else it must be given to `send` next.

        Nobody may send on this connection meanwhile.
        """

    def receive(self) -> Frame:
        """Wait for the next frame. A payload that travels must be taken by `receive_into` before the next `receive`.

        Raises:
            PeerLost: the connection is broken or closed.
            ProtocolError: the peer does not speak the protocol.
        """

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """Fill `buffers`, which together have the frame's `payload_bytes`; what lies there already is not copied."""

    def image_at(self, places: Sequence[slice]) -> Image | None:
        """Return the shared image in which the payload of the last frame lies at these places; None: none does."""

    def lying(self) -> Sequence[Raw]:
        """Return where the payload of the last frame lies in shared memory; nothing where it travels."""

    def hang_up(self) -> None:
        """Break the connection under a thread that uses it; a blocked `receive` on either side raises PeerLost.

        What it takes of the system is kept until `close`, which that thread calls: else the thread could go on with the
        descriptor of another connection, which has got the same number.
        """

    def close(self) -> None:
        """Break the connection, as `hang_up`, and give back what it takes."""


class Unshared:
    """An `Unshared` is what a `Connection` is that shares no memory: every byte travels."""

    reason = ""

    @property
    def shared(self) -> Sequence[Image]:
        """See `Connection.shared`."""
        return ()

    def share(self, writable: Image, readable: Sequence[Image]) -> None:
        """See `Connection.share`: nothing is shared."""

    def image_at(self, places: Sequence[slice]) -> Image | None:
        """See `Connection.image_at`."""
        return None

    def lying(self) -> Sequence[Raw]:
        """See `Connection.lying`."""
        return ()


class Listener(Protocol):
    """A `Listener` is where peers connect to."""

    @property
    def address(self) -> tuple[str, int]:
        """The (host, port) to give to peers."""

    def accept(self) -> Connection:
        """Wait for a peer. Raises PeerLost once the listener is closed."""

    def close(self) -> None:
        """Stop listening."""


class Transport(Protocol):
    """A `Transport` makes connections, and knows the job's token."""

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        """Listen for peers.

        Args:
            host: address to listen on.
            port: 0 takes a free one.
            reached_as: the host that peers connect to, if another.
        """

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> Connection:
        """Connect to a peer that listens, and greet.

        Args:
            host: address of the peer.
            port: of the peer.
            peer: its name, for errors.
            timeout: seconds for all of it.

        Raises:
            PeerLost: nobody is there, or not in time, or somebody who does not know the job's token.
        """

    def joined(self, connection: Connection, frame: Frame) -> Connection | None:
        """Return the connection that an accepted socket, whose first frame is a JOIN, completes; None until the last.

        Raises:
            ProtocolError: no correct peer sends such a frame.
        """
