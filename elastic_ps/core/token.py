"""The job's token: the secret that every frame and every call shows, and the file that it is kept in."""

import hmac
from collections.abc import Iterable
from pathlib import Path

from elastic_ps.core.errors import ConfigurationError

TOKEN_BYTES = 16
_METADATA = "authorization"


def read_token(path: str | Path) -> bytes:
    """The job token, `TOKEN_BYTES` long, from its file of hex digits.

    Raises:
        ConfigurationError: no such file, or not a token.
    """
    try:
        token = bytes.fromhex(Path(path).read_text().strip())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the job token from {path}: {error}") from error
    if len(token) != TOKEN_BYTES:
        raise ConfigurationError(f"the token in {path} has {len(token)} bytes, not {TOKEN_BYTES}")
    return token


def credentials(token: bytes) -> tuple[tuple[str, str], ...]:
    """A call's metadata: it goes before the message, and is judged before any of that is read."""
    return ((_METADATA, f"Bearer {token.hex()}"),)


def admits(token: bytes, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Whether a call's metadata show the job's token, compared in the same time whatever is shown."""
    expected = credentials(token)[0][1].encode()
    shown = [value for name, value in metadata if name == _METADATA]
    given = shown[0] if len(shown) == 1 else b""
    return hmac.compare_digest(given.encode() if isinstance(given, str) else given, expected)
