"""This module reads what a node process is told by its launcher."""

import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_ps.control.token import read_token
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.job_mode import JobMode
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.system.process.helper_processes import is_helper_process
from elastic_ps.transport.choice import DEFAULT_TRANSPORT, TransportName, TransportSettings
from elastic_ps.transport.striped import MOST_SOCKETS

MACHINE = "ELASTIC_MACHINE"
"""This environment variable names the machine that a process runs on: a container's address does not tell."""


@dataclass(frozen=True)
class NodeSettings:
    """A `NodeSettings` tells a node how it finds its job.

    Attributes:
        coordinator: host:port of the job's coordinator.
        token: the job's secret, `control.token.TOKEN_BYTES` long; shown on both planes.
        host: address that peers reach this node at.
        nonce: the launcher's name for this process; a retried registration with the same one is the same node.
        transport: of tensors.
        cpu_share: cores that a worker keeps to by resting between steps; 0: it does not.
        machine: name of the machine that it runs on; "": all nodes at `host` are on one.
        modules: that a server may load update rules from.
        mode: of the job.
    """

    coordinator: str
    token: bytes = field(repr=False)
    host: str = "127.0.0.1"
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    transport: TransportSettings = DEFAULT_TRANSPORT
    cpu_share: float = 0.0
    machine: str = ""
    modules: tuple[ModuleFile, ...] = ()
    mode: JobMode = JobMode.PARAMETER_SERVERS

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> "NodeSettings":
        """Read what `launch.commands.node_environment` sets.

        Raises:
            ConfigurationError: the process was not started as part of a job, or by a transport that there is not.
        """
        try:
            coordinator, token_file = environment["ELASTIC_COORDINATOR"], environment["ELASTIC_TOKEN_FILE"]
        except KeyError as error:
            raise ConfigurationError(
                f"{error.args[0]} is not set: this script is not part of a job. Start it with "
                "`elasticrun --workers N --servers M script.py`, or join a running job with "
                "`elasticrun --role worker --coordinator HOST:PORT --token-file FILE script.py`"
            ) from None
        return NodeSettings(
            coordinator,
            read_token(token_file),
            environment.get("ELASTIC_HOST", "127.0.0.1"),
            environment.get("ELASTIC_NONCE") or secrets.token_hex(8),
            _transport(environment),
            _cpu_share(environment),
            environment.get(MACHINE, ""),
            mode=mode_of(environment),
        )


def is_node(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process was started as a node of a job, and not by one, to load its data, say."""
    return "ELASTIC_COORDINATOR" in environment and not is_helper_process()


def mode_of(environment: Mapping[str, str] = os.environ) -> JobMode:
    """Return the mode of the job that a process was started for; without a job that with servers."""
    name = environment.get("ELASTIC_MODE") or JobMode.PARAMETER_SERVERS
    if name not in list(JobMode):
        raise ConfigurationError(f"ELASTIC_MODE is {name}: give one of {', '.join(JobMode)}")
    return JobMode(name)


def _cpu_share(environment: Mapping[str, str]) -> float:
    text = environment.get("ELASTIC_CPU_SHARE")
    if not text:
        return 0.0
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not (math.isfinite(share) and share > 0):
        raise ConfigurationError(f"ELASTIC_CPU_SHARE is {text}: give cores, a number above 0")
    return share


def _transport(environment: Mapping[str, str]) -> TransportSettings:
    name = environment.get("ELASTIC_TRANSPORT") or TransportName.AUTO
    if name not in list(TransportName):
        raise ConfigurationError(f"ELASTIC_TRANSPORT is {name}: give one of {', '.join(TransportName)}")
    sockets = environment.get("ELASTIC_TCP_SOCKETS") or "1"
    if not sockets.isascii() or not sockets.isdigit() or not 1 <= int(sockets) <= MOST_SOCKETS:
        raise ConfigurationError(f"ELASTIC_TCP_SOCKETS is {sockets}: give a number from 1 to {MOST_SOCKETS}")
    return TransportSettings(TransportName(name), int(sockets))
