"""What a node process is told by its launcher."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.transport.frames import TOKEN_BYTES


@dataclass(frozen=True)
class NodeSettings:
    """How a node finds its job.

    Attributes:
        coordinator: host:port of the job's coordinator.
        token: the job's secret, `TOKEN_BYTES` long; shown on both planes.
        host: address that peers reach this node at.
        nonce: the launcher's name for this process; a retried registration with the same one is the same node.
    """

    coordinator: str
    token: bytes = field(repr=False)
    host: str = "127.0.0.1"
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> "NodeSettings":
        """Read ELASTIC_COORDINATOR, ELASTIC_TOKEN_FILE, ELASTIC_HOST and ELASTIC_NONCE.

        Raises:
            ConfigurationError: the process was not started as part of a job.
        """
        try:
            coordinator, token_file = environment["ELASTIC_COORDINATOR"], environment["ELASTIC_TOKEN_FILE"]
        except KeyError as error:
            raise ConfigurationError(
                f"{error.args[0]} is not set: this script is not part of a job. Start it with "
                "`elasticrun --workers N --servers M script.py`, or join a running job with "
                "`elasticrun --role worker --coordinator HOST:PORT --token-file FILE script.py`"
            ) from error
        return NodeSettings(
            coordinator,
            read_token(token_file),
            environment.get("ELASTIC_HOST", "127.0.0.1"),
            environment.get("ELASTIC_NONCE") or secrets.token_hex(8),
        )


def read_token(path: str | Path) -> bytes:
    """The job token from its file of hex digits.

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
