"""This module greets on a socket of the data plane: each end proves that it knows the job's token (`token_proof`).

    who connects -> who listens    "ELPS", protocol, 0, nonce
    who listens -> who connects    "ELPS", protocol, 0, nonce, proof
    who connects -> who listens    proof

Who listens proves first, so nobody who has taken the port of a node that died learns anything from those who look for
it. The port that was meant is part of both proofs: he cannot let another node of the same host answer in his place,
either. Whoever is let in is trusted from then on: that nobody reads or changes what travels is up to the network, until
TLS goes below this.
"""

import socket
import struct
import time
from collections.abc import Callable

from elastic_ps.control.token_proof import NONCE_BYTES, PROOF_BYTES, Purpose, new_nonce, proof, proves
from elastic_ps.core.errors import PeerLost, ProtocolError

PROTOCOL_VERSION = 7
MAGIC = b"ELPS"
OTHER = "another program, or another version of this one, uses this port"
"""The likely cause where bytes are not what a peer of this release sends."""

_FIRST = struct.Struct(f"<4sHH{NONCE_BYTES}s")


class _Patience:
    """A `_Patience` reads and writes a socket within one span of time, whatever the pace."""

    def __init__(self, sock: socket.socket, peer: str, seconds: float):
        self._sock, self._peer = sock, peer
        self._until = time.monotonic() + seconds

    def _wait(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise PeerLost(self._peer, "did not prove in time that it belongs to this job")
        self._sock.settimeout(left)

    def send(self, data: bytes) -> None:
        self._wait()
        self._sock.sendall(data)

    def receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._wait()
            part = self._sock.recv(count - len(data))
            if not part:
                raise PeerLost(self._peer, "connection closed")
            data += part
        return bytes(data)


def call(sock: socket.socket, peer: str, token: bytes, port: int, seconds: float) -> None:
    """Greet as the one who has connected; the socket blocks afterwards.

    Args:
        sock: connected.
        peer: its name, for errors.
        token: the job's.
        port: that was meant.
        seconds: for all of it.

    Raises:
        PeerLost: the other end does not know the token, says nothing in time, or is gone.
    """
    own = new_nonce()
    try:
        line = _Patience(sock, peer, seconds)
        line.send(_FIRST.pack(MAGIC, PROTOCOL_VERSION, 0, own))
        theirs = _first(line.receive(_FIRST.size))
        if not proves(line.receive(PROOF_BYTES), token, Purpose.DATA_LISTENER, own, theirs, _port(port)):
            raise PeerLost(peer, "whoever answers there does not know this job's token, and is not part of it")
        line.send(proof(token, Purpose.DATA_CALLER, own, theirs, _port(port)))
        sock.settimeout(None)
    except TimeoutError as error:
        raise PeerLost(peer, "did not prove in time that it belongs to this job") from error
    except OSError as error:
        raise PeerLost(peer, str(error)) from error
    except ProtocolError as error:
        raise PeerLost(peer, str(error)) from error


def answer(sock: socket.socket, peer: str, token: bytes, port: int, seconds: float) -> None:
    """Greet as the one who listens; the socket blocks afterwards.

    Args:
        sock: accepted.
        peer: its name, for errors.
        token: the job's.
        port: that this end listens at.
        seconds: for all of it.

    Raises:
        ProtocolError: who has connected is not of this job.
        PeerLost: it says nothing in time, or is gone.
    """
    own = new_nonce()
    try:
        line = _Patience(sock, peer, seconds)
        theirs = _first(line.receive(_FIRST.size))
        shown = proof(token, Purpose.DATA_LISTENER, theirs, own, _port(port))
        line.send(_FIRST.pack(MAGIC, PROTOCOL_VERSION, 0, own) + shown)
        if not proves(line.receive(PROOF_BYTES), token, Purpose.DATA_CALLER, theirs, own, _port(port)):
            raise ProtocolError("it does not know this job's token")
        sock.settimeout(None)
    except TimeoutError as error:
        raise PeerLost(peer, "did not prove in time that it belongs to this job") from error
    except OSError as error:
        raise PeerLost(peer, str(error)) from error


def called(sock: socket.socket, peer: str, token: bytes, port: int, seconds: float) -> socket.socket:
    """Greet as in `call`, with its arguments, and return the socket; it is closed where that fails.

    Args:
        sock: connected.
        peer: its name, for errors.
        token: the job's.
        port: that was meant.
        seconds: for all of it.
    """
    try:
        call(sock, peer, token, port, seconds)
    except PeerLost:
        sock.close()
        raise
    return sock


def answering(token: bytes, port: int) -> Callable[[socket.socket, str, float], None]:
    """Return `answer` for a listener of this port."""
    return lambda sock, peer, seconds: answer(sock, peer, token, port, seconds)


def _first(data: bytes) -> bytes:
    """Return the nonce of an end's first bytes."""
    magic, protocol, zero, nonce = _FIRST.unpack(data)
    if magic != MAGIC:
        raise ProtocolError(f"its first bytes are {magic!r}, not {MAGIC!r}: {OTHER}")
    if zero:  # a frame has its kind here
        raise ProtocolError(f"it has sent a frame and no greeting: {OTHER}")
    if protocol != PROTOCOL_VERSION:
        raise ProtocolError(f"it speaks data-plane protocol {protocol}, this node {PROTOCOL_VERSION}: use one release")
    return bytes(nonce)


def _port(port: int) -> bytes:
    return port.to_bytes(4, "little")
