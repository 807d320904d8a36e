"""This module connects inside one host: frames go over a Unix socket, tensors lie in memory that both processes map.

A server listens beside its TCP port on a Unix socket (see `shm_rendezvous`), where a peer finds that server or nobody:
in another job, on another host or in another network namespace with which no folder is shared it has to take TCP. The
memory is the server's, handed over by file descriptors.
"""

import errno
import logging
import os
import socket
import weakref
from array import array
from collections.abc import Callable, Sequence
from functools import partial

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.core.segments import Raw
from elastic_ps.transport.base import Buffer, Connection, Listener
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.greeting import answer, called
from elastic_ps.transport.shared_memory import Image
from elastic_ps.transport.shared_payloads import SharedPayloads
from elastic_ps.transport.shm_rendezvous import ShmRendezvous, check_user
from elastic_ps.transport.stream import Greet, SocketConnection, SocketListener
from elastic_ps.transport.tcp import TcpTransport, listening_socket

log = logging.getLogger(__name__)

_MOST_IMAGES = 8


class ShmConnection(SocketConnection):
    """See `Connection`.

    Args:
        sock: connected.
        peer: its name.
        takes: the peer may share memory, once.
        greet: see `SocketConnection`.
        unattached: called where this process has no room for the memory that the peer shares.
    """

    kind = "shm"

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        takes: bool,
        greet: Greet | None = None,
        unattached: Callable[[OSError], None] = lambda _error: None,
    ):
        super().__init__(sock, peer, greet)
        self._takes = takes
        self._unattached = unattached
        self._payloads = SharedPayloads()

    @property
    def shared(self) -> Sequence[Image]:
        """See `Connection.shared`."""
        return self._payloads.shared

    def share(self, writable: Image, readable: Sequence[Image]) -> None:
        """See `Connection.share`."""
        self._payloads.shared = (writable, *readable)
        self._unsent.append(os.dup(writable.descriptor))  # one by one: `close` finds those that there are
        for image in readable:
            self._unsent.append(image.read_only())

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """See `Connection.send`."""
        if (lying := self._payloads.lying_there(frame, payload)) is not None:
            self._send_frame(lying, ())
        else:
            super().send(frame, payload)

    def offer(self, frame: Frame, payload: Sequence[Buffer] = ()) -> bool:
        """See `Connection.offer`: one whose payload lies in shared memory is small."""
        lying = self._payloads.lying_there(frame, payload)
        return self._offer_frame(lying, ()) if lying is not None else super().offer(frame, payload)

    def receive(self) -> Frame:
        """See `Connection.receive`."""
        frame = super().receive()
        self._payloads.begin(frame)
        return frame

    def image_at(self, places: Sequence[slice]) -> Image | None:
        """See `Connection.image_at`."""
        return self._payloads.image_at(places)

    def lying(self) -> Sequence[Raw]:
        """See `Connection.lying`."""
        return self._payloads.lying

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """See `Connection.receive_into`."""
        if not self._payloads.take(buffers):
            super().receive_into(buffers)

    def _take(self, view: memoryview) -> int:
        if not self._takes:
            return super()._take(view)
        space = socket.CMSG_SPACE(_MOST_IMAGES * array("i").itemsize)
        got, messages, flags, _ = self._socket.recvmsg_into([view], space, socket.MSG_CMSG_CLOEXEC)
        descriptors = array("i")
        for level, kind, data in messages:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data)
        lacking = bool(flags & socket.MSG_CTRUNC)
        if descriptors or lacking:
            self._takes = False
            try:
                self._payloads.shared = _attached(descriptors, lacking)
            except OSError as error:
                self._unattached(error)
                raise
        return got


def _attached(descriptors: Sequence[int], lacking: bool) -> tuple[Image, ...]:
    """Map the images of these descriptors, of which the first may be written to, or none.

    Args:
        descriptors: they belong to the images from now on.
        lacking: more were sent, for which this process had no room.

    Raises:
        OSError: this process has no descriptors left.
    """
    left = list(descriptors)
    try:
        if lacking:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return tuple(Image.attached(left.pop(0), number == 0) for number in range(len(descriptors)))
    except OSError:
        for descriptor in left:
            os.close(descriptor)
        raise


class ShmListener(SocketListener):
    """See `Listener`.

    Attributes:
        leave: takes away what the listener has left in the folder that peers meet in.
    """

    leave: Callable[[], object]

    def close(self) -> None:
        """See `Listener.close`."""
        super().close()
        self.leave()


class ShmTransport:
    """See `Transport`.

    Args:
        token: the job's, `control.token.TOKEN_BYTES` long.
        sockets: see `TcpTransport`.
        folder: see `ShmRendezvous`.
    """

    def __init__(self, token: bytes, sockets: int = 1, folder: str = ""):
        self._token = token
        self.tcp = TcpTransport(token, sockets)
        self.rendezvous = ShmRendezvous(token, folder)

    def listen(self, host: str, port: int = 0, reached_as: str = "") -> Listener:
        """See `Transport.listen`: peers that cannot share memory are welcome by TCP."""
        tcp = listening_socket(host, port)
        address: tuple[str, int] = tcp.getsockname()[:2]
        there = (reached_as or host, address[1])
        try:
            local = self.rendezvous.listen(*there)
        except OSError as error:
            level = logging.INFO if self.rendezvous.is_nowhere else logging.WARNING
            log.log(level, "peers reach this node by TCP alone: %s", self.rendezvous.why(error))
            return SocketListener({tcp: self.tcp.accepted}, address)
        accepted = partial(self._accepted, address[1])
        listener = ShmListener({tcp: self.tcp.accepted, local: accepted}, address)
        listener.leave = weakref.finalize(listener, self.rendezvous.leave, *there)  # else, at exit
        return listener

    def _accepted(self, port: int, sock: socket.socket, peer: str) -> SocketConnection:
        def greet(sock: socket.socket, peer: str, seconds: float) -> None:
            try:
                check_user(sock)
            except OSError as error:
                raise ProtocolError(str(error)) from error
            answer(sock, peer, self._token, port, seconds)

        return ShmConnection(sock, peer, takes=False, greet=greet)

    def joined(self, connection: Connection, frame: Frame) -> Connection | None:
        """See `Transport.joined`: only TCP's have several sockets."""
        return self.tcp.joined(connection, frame)

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> SocketConnection:
        """See `Transport.connect`."""
        try:
            sock = self.rendezvous.connect(host, port, timeout)
        except OSError as error:
            raise PeerLost(
                peer, f"cannot connect to {host}:{port} by shared memory: {self.rendezvous.why(error)}"
            ) from error
        unattached = partial(self.unattached, host, port)
        return ShmConnection(called(sock, peer, self._token, port, timeout), peer, takes=True, unattached=unattached)

    def unattached(self, host: str, port: int, error: OSError) -> None:
        """Take note that this process has no room for the memory of a peer: the connection breaks.

        Args:
            host: that the peer is reached at.
            port: that the peer is reached at.
            error: why there is no room.
        """
