"""What the processes of a job are run with: settings, command lines, environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from elastic_ps.core.configuration import Role
from elastic_ps.system.storage import new_identity
from elastic_ps.transport.choice import DEFAULT_TRANSPORT, TransportSettings

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Several nodes share a machine: each computes with one thread unless the user says otherwise."""


@dataclass(frozen=True)
class Script:
    """The user's training program.

    Attributes:
        target: a file, or a module's name.
        arguments: passed on untouched.
        module: run `target` as `python -m` does.
    """

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    @property
    def command(self) -> list[str]:
        """argv."""
        return [sys.executable, *(["-m"] if self.module else []), self.target, *self.arguments]


@dataclass(frozen=True)
class JobSettings:
    """A job to run on this machine.

    Attributes:
        name: of the job.
        script: what workers run.
        workers: at the start.
        servers: at the start.
        host: address that nodes reach each other and the coordinator at.
        max_restarts: deaths of processes that are mended.
        grace: seconds that processes have to end by themselves, and again after SIGTERM.
        lease: seconds that a node may be silent.
        checkpoint: URL of the checkpoints' folder; "": inside the job's.
        identity: of this training run; it outlives a coordinator that loses its folder.
        coordinator_options: further arguments of `python -m coordinator`.
        optimizer_modules: modules that servers load update rules from.
        transport: of tensors.
        wraps: of each role, program and arguments that its nodes' own follow: it becomes the node.
    """

    name: str
    script: Script
    workers: int = 1
    servers: int = 1
    host: str = "127.0.0.1"
    max_restarts: int = 3
    grace: float = 30.0
    lease: float = 10.0
    checkpoint: str = ""
    identity: str = field(default_factory=new_identity, compare=False)
    coordinator_options: tuple[str, ...] = ()
    optimizer_modules: tuple[str, ...] = ()
    transport: TransportSettings = DEFAULT_TRANSPORT
    wraps: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """How a process finds its job.

    Attributes:
        coordinator: host:port.
        token_file: the job's secret.
        host: address that peers reach the node at.
        transport: of tensors.
    """

    coordinator: str
    token_file: Path
    host: str
    transport: TransportSettings = DEFAULT_TRANSPORT


class Commands(Protocol):
    """The command lines of a job's processes."""

    def coordinator(self, folder: Path, token_file: Path, port: int) -> list[str]:
        """The coordinator's; it prints `listening on HOST:PORT` once it does. Port 0 takes a free one."""

    def node(self, role: Role, place: Place, nonce: str) -> list[str]:
        """A node's."""


@dataclass(frozen=True)
class NodeCommands:
    """The real servers and workers.

    Attributes:
        script: of the workers; None where only servers are started.
        optimizer_modules: of the servers.
    """

    script: Script | None = None
    optimizer_modules: tuple[str, ...] = ()

    def node(self, role: Role, place: Place, nonce: str) -> list[str]:
        """A node's argv."""
        if role is Role.WORKER:
            assert self.script is not None, "workers run a script"
            return self.script.command
        modules = [argument for module in self.optimizer_modules for argument in ("--optimizer-module", module)]
        where = ["--coordinator", place.coordinator, "--token-file", str(place.token_file), "--host", place.host]
        transport = ["--transport", place.transport.name, "--tcp-sockets", str(place.transport.sockets)]
        how = [*transport, "--nonce", nonce]
        return [sys.executable, "-m", "elastic_ps.server", *where, *how, *modules]


@dataclass(frozen=True)
class JobCommands:
    """The real processes of a whole job."""

    settings: JobSettings
    nodes: NodeCommands = field(init=False)

    def __post_init__(self) -> None:
        nodes = NodeCommands(self.settings.script, self.settings.optimizer_modules)
        object.__setattr__(self, "nodes", nodes)

    def coordinator(self, folder: Path, token_file: Path, port: int) -> list[str]:
        """The coordinator's argv."""
        settings = self.settings
        options = {
            "--job": settings.name,
            "--folder": str(folder),
            "--token-file": str(token_file),
            "--host": settings.host,
            "--port": str(port),
            "--workers": str(settings.workers),
            "--servers": str(settings.servers),
            "--checkpoint": settings.checkpoint or str(folder / "checkpoints"),
            "--identity": settings.identity,
        }
        given = [argument for option in options.items() for argument in option]
        return [sys.executable, "-m", "coordinator", *given, *settings.coordinator_options]

    def node(self, role: Role, place: Place, nonce: str) -> list[str]:
        """A node's argv."""
        return [*self.settings.wraps.get(role, ()), *self.nodes.node(role, place, nonce)]


def node_environment(place: Place, nonce: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a node process (docs/architecture.md)."""
    return {
        **dict.fromkeys(_ONE_THREAD, "1"),
        "PYTHONUNBUFFERED": "1",  # a killed node's last lines are in its log
        **environment,
        "ELASTIC_COORDINATOR": place.coordinator,
        "ELASTIC_TOKEN_FILE": str(place.token_file),
        "ELASTIC_NONCE": nonce,
        "ELASTIC_HOST": place.host,
        "ELASTIC_TRANSPORT": place.transport.name,
        "ELASTIC_TCP_SOCKETS": str(place.transport.sockets),
    }
