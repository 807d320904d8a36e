"""This module keeps the job's token: its file, and how both ends of the control plane prove that they know it.

A caller draws a nonce and sends it with a `Greet`. The coordinator answers with its own, which it has for as long as
its process lives, and the proof (`token_proof`) over both. Only then the caller shows its own proof, in the metadata of
each call. A thief at the address of a coordinator that died cannot prove anything, so he is shown nothing; and what a
caller shows in the moment in which one process takes another's place is of no use to the next one.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from elastic_ps.control.token_proof import NONCE_BYTES, Purpose, new_nonce, proof, proves
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.bounded_files import read_text
from protos import elastic_pb2 as pb

TOKEN_BYTES = 16
_LONGEST = 1024  # bytes of its file
Metadata = tuple[tuple[str, str], ...]
"""The metadata of a call go before its message, and are judged before any of that is read."""

_REMEMBERED = 1024
"""Proofs: nodes show the same one at each call, until they greet again."""

_METADATA, _SCHEME, _NONCE = "authorization", "Elastic", "elastic-nonce"


def read_token(path: str | Path) -> bytes:
    """Read the job token, `TOKEN_BYTES` long, from its file of hex digits.

    Raises:
        ConfigurationError: there is no such file, or it holds no token.
    """
    try:
        token = bytes.fromhex(read_text(path, _LONGEST).strip())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the job token from {path}: {error}") from error
    if len(token) != TOKEN_BYTES:
        raise ConfigurationError(f"the token in {path} has {len(token)} bytes, not {TOKEN_BYTES}")
    return token


class Impostor(Exception):
    """Whoever answers at a coordinator's address does not know the job's token."""


def greeting() -> tuple[bytes, Metadata]:
    """Return a new nonce, and the metadata of a `Greet` that brings it."""
    nonce = new_nonce()
    return nonce, ((_NONCE, nonce.hex()),)


def admitted(token: bytes, nonce: bytes, answer: pb.GreetReply) -> Metadata:
    """Return the metadata of calls after a `Greet`, which are good for the process alone that has answered it.

    Args:
        token: the job's.
        nonce: of the `Greet`.
        answer: to it.

    Raises:
        Impostor: the answer proves nothing.
    """
    if len(answer.nonce) != NONCE_BYTES or not proves(
        answer.proof, token, Purpose.CONTROL_LISTENER, nonce, answer.nonce
    ):
        raise Impostor
    shown = proof(token, Purpose.CONTROL_CALLER, nonce, answer.nonce)
    return ((_METADATA, f"{_SCHEME} {nonce.hex()} {shown.hex()}"),)


class Door:
    """A `Door` is the coordinator's end: it proves that it knows the token, and judges who calls.

    Its nonce is of this process: what callers have shown to one that has died, or to nobody, opens nothing.

    Args:
        token: the job's.
    """

    def __init__(self, token: bytes):
        self._token = token
        self._nonce = new_nonce()
        self._is_proof = lru_cache(_REMEMBERED)(self._judge)

    def greet(self, metadata: Iterable[tuple[str, str | bytes]]) -> pb.GreetReply:
        """Return the answer to a `Greet` with these metadata. Raises ValueError: they have no nonce."""
        nonce = _nonce(_one(metadata, _NONCE))
        shown = proof(self._token, Purpose.CONTROL_LISTENER, nonce, self._nonce)
        return pb.GreetReply(nonce=self._nonce, proof=shown)

    def admits(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Return whether a call's metadata prove the token, to this process."""
        try:
            return self._is_proof(_one(metadata, _METADATA))
        except ValueError:
            return False

    def _judge(self, said: str) -> bool:
        """Return whether what was said proves the token. Raises ValueError: it is no proof."""
        scheme, nonce, shown = said.split(" ")
        return scheme == _SCHEME and proves(
            bytes.fromhex(shown), self._token, Purpose.CONTROL_CALLER, _nonce(nonce), self._nonce
        )


def _one(metadata: Iterable[tuple[str, str | bytes]], name: str) -> str:
    (value,) = [value for key, value in metadata if key == name]
    return value if isinstance(value, str) else value.decode()


def _nonce(text: str) -> bytes:
    nonce = bytes.fromhex(text)
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
    return nonce
