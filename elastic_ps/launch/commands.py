"""This module says what the processes of a job are run with: their command lines and their environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from elastic_ps.core.configuration import Role
from elastic_ps.core.job_mode import JobMode
from elastic_ps.launch.options import JobSettings, Script
from elastic_ps.system.process.own_programs import own_program
from elastic_ps.transport.choice import DEFAULT_TRANSPORT, TransportSettings

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Several nodes share a machine: each computes with one thread unless the user says otherwise."""


@dataclass(frozen=True)
class JoinSettings:
    """A `JoinSettings` tells a node process how it finds its job, and its peers how they reach it.

    Attributes:
        coordinator: host:port.
        token_file: holds the job's secret.
        host: address that peers reach the node at.
        transport: how tensors travel.
        mode: who updates the parameters.
    """

    coordinator: str
    token_file: Path
    host: str
    transport: TransportSettings = DEFAULT_TRANSPORT
    mode: JobMode = JobMode.PARAMETER_SERVERS


class ProcessCommands(Protocol):
    """A `ProcessCommands` gives the command lines of a job's processes."""

    def coordinator(self, folder: Path, token_file: Path, port: int, term: int) -> list[str]:
        """Return the argv of the coordinator, which prints `listening on HOST:PORT` once it does.

        Args:
            folder: of the job.
            token_file: holds the job's secret.
            port: to listen on; 0 takes a free one.
            term: 1 for the job's first; where a later one finds no journal, it asks the nodes that train.
        """

    def node(self, role: Role, join: JoinSettings, nonce: str) -> list[str]:
        """Return the argv of a node.

        Args:
            role: what it does.
            join: how it finds its job.
            nonce: the launcher's name for the process.
        """


@dataclass(frozen=True)
class NodeCommands:
    """A `NodeCommands` gives the command lines of real servers and workers.

    Attributes:
        script: what workers run; None where only servers are started.
        optimizer_modules: modules that servers load update rules from.
    """

    script: Script | None = None
    optimizer_modules: tuple[str, ...] = ()

    def node(self, role: Role, join: JoinSettings, nonce: str) -> list[str]:
        """See `ProcessCommands.node`."""
        if role is Role.WORKER:
            assert self.script is not None, "workers run a script"
            return self.script.command
        modules = [argument for module in self.optimizer_modules for argument in ("--optimizer-module", module)]
        where = ["--coordinator", join.coordinator, "--token-file", str(join.token_file), "--host", join.host]
        transport = ["--transport", join.transport.name, "--tcp-sockets", str(join.transport.sockets)]
        how = [*transport, "--nonce", nonce]
        return [*own_program("elastic_ps.server"), *where, *how, *modules]


@dataclass(frozen=True)
class JobCommands:
    """A `JobCommands` gives the command lines of the real processes of a whole job."""

    settings: JobSettings
    nodes: NodeCommands = field(init=False)

    def __post_init__(self) -> None:
        nodes = NodeCommands(self.settings.script, self.settings.nodes.modules)
        object.__setattr__(self, "nodes", nodes)

    def coordinator(self, folder: Path, token_file: Path, port: int, term: int) -> list[str]:
        """See `ProcessCommands.coordinator`."""
        job = self.settings.job
        options = {"--job": job.name, "--folder": str(folder), "--token-file": str(token_file), "--port": str(port)}
        options["--term"] = str(term)
        if not job.checkpoint:
            options["--checkpoint"] = str(folder / "checkpoints")
        own = [argument for option in options.items() for argument in option]
        return [*own_program("coordinator"), "--launched", *own, *self.settings.for_coordinator()]

    def node(self, role: Role, join: JoinSettings, nonce: str) -> list[str]:
        """See `ProcessCommands.node`."""
        return [*self.settings.job.wraps.get(role, ()), *self.nodes.node(role, join, nonce)]


def node_environment(join: JoinSettings, nonce: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a node process (docs/concepts/architecture.md).

    Args:
        join: how the node finds its job.
        nonce: the launcher's name for the process.
        environment: what the process inherits.
    """
    return {
        **dict.fromkeys(_ONE_THREAD, "1"),
        "PYTHONUNBUFFERED": "1",  # a killed node's last lines are in its log
        **environment,
        "ELASTIC_COORDINATOR": join.coordinator,
        "ELASTIC_TOKEN_FILE": str(join.token_file.absolute()),  # a script may go elsewhere before it joins
        "ELASTIC_NONCE": nonce,
        "ELASTIC_HOST": join.host,
        "ELASTIC_TRANSPORT": join.transport.name,
        "ELASTIC_TCP_SOCKETS": str(join.transport.sockets),
        "ELASTIC_MODE": join.mode,
    }
