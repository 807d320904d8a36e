"""The job's token: the secret that every message on both planes shows, and the file that it is kept in."""

from pathlib import Path

from elastic_ps.core.errors import ConfigurationError

TOKEN_BYTES = 16


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
