"""This module declares the options of `elasticrun`, grouped by what they are for.

An option of the coordinator is declared here once, marked `FOR_COORDINATOR`: the launcher passes it on by its own name,
and `coordinator.options` declares what it means there.
"""

import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from elastic_ps.core.configuration import MOST_NODES, MOST_REPLICAS, Role
from elastic_ps.core.data_order import MOST_SEED
from elastic_ps.core.job_mode import JobMode
from elastic_ps.core.model import ALIGNMENT
from elastic_ps.transport.choice import TransportName, TransportSettings
from elastic_ps.transport.striped import MOST_SOCKETS

_MOST_BLOCK_BYTES = 1 << 40

FOR_COORDINATOR = "for the coordinator"
"""Marks an option that `python -m coordinator` has too, by the same name: it is passed on where it is given."""


class MigrationMode(StrEnum):
    """An operator chooses here how blocks move to other servers."""

    LIVE = "live"
    PAUSE = "pause"


@dataclass(frozen=True)
class Script:
    """A `Script` is the user's training program.

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
        """The argv of a worker that runs it."""
        return [sys.executable, *(["-m"] if self.module else []), self.target, *self.arguments]


@dataclass(frozen=True)
class ProgramOptions:
    """These arguments say what is trained."""

    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="Training script, or with -m a module.", show_default=False)
    ] = ""
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Passed to the script untouched.")
    ] = None
    module: Annotated[bool, typer.Option("-m", help="Run SCRIPT as `python -m` does.")] = False

    def of_workers(self) -> Script | None:
        """Return what workers run; None where no script is given."""
        return Script(self.script, tuple(self.arguments or ()), self.module) if self.script else None


@dataclass(frozen=True)
class JobOptions:
    """These options describe a whole job."""

    workers: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_NODES, help="Workers at the start."), FOR_COORDINATOR
    ] = 1
    servers: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_NODES, help="Servers at the start."), FOR_COORDINATOR
    ] = 1
    replicas: Annotated[
        int,
        typer.Option(
            metavar="0|1",
            min=0,
            max=MOST_REPLICAS,
            help="Servers that keep a copy of each block: with 1 any server may die and nothing is lost.",
        ),
        FOR_COORDINATOR,
    ] = 0
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the job [made from the script's].")] = ""
    max_restarts: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Deaths mended in a row; 10 minutes of training without one end the row."
        ),
    ] = 3
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=MOST_SEED, help="Seed of the order of the samples."),
        FOR_COORDINATOR,
    ] = None
    block_bytes: Annotated[
        int | None,
        typer.Option(metavar="N", min=ALIGNMENT, max=_MOST_BLOCK_BYTES, help="Bytes of the largest block of a tensor."),
        FOR_COORDINATOR,
    ] = None
    migration: Annotated[
        MigrationMode | None, typer.Option(help="How blocks move to other servers."), FOR_COORDINATOR
    ] = None
    checkpoint: Annotated[
        str,
        typer.Option(metavar="URL", help="Folder of checkpoints, any fsspec URL [the job's folder]."),
        FOR_COORDINATOR,
    ] = ""
    checkpoint_interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between checkpoints."), FOR_COORDINATOR
    ] = None
    restore: Annotated[
        str,
        typer.Option(metavar="URL", help="Start from this checkpoint, or from the newest in this folder."),
        FOR_COORDINATOR,
    ] = ""
    identity: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Name of this training run in its checkpoints; runs of one name go on as one [new]."
        ),
        FOR_COORDINATOR,
    ] = ""
    wrap_worker: Annotated[
        str, typer.Option(metavar="COMMAND", help="Program that runs each worker, as in 'nice -n 5'.")
    ] = ""
    wrap_server: Annotated[
        str, typer.Option(metavar="COMMAND", help="Program that runs each server, as in 'nice -n 5'.")
    ] = ""
    lease: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="Seconds that a node may be silent."), FOR_COORDINATOR
    ] = 10.0

    @property
    def wraps(self) -> dict[Role, tuple[str, ...]]:
        """The program and arguments, by role, that a node's own command follows: that program becomes the node."""
        commands = {Role.WORKER: self.wrap_worker, Role.SERVER: self.wrap_server}
        return {role: tuple(shlex.split(command)) for role, command in commands.items() if command}


@dataclass(frozen=True)
class NodeOptions:
    """These options describe one node that joins a job."""

    role: Annotated[Role | None, typer.Option(help="Join one node to a running job.")] = None
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Coordinator of the job that --role joins.")] = (
        ""
    )
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Token of the job that --role joins.")] = None
    nonce_prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="Names --role's processes PREFIX.1, PREFIX.2 [random].")
    ] = ""


@dataclass(frozen=True)
class NodesOptions:
    """These options are for every node, of a job or alone."""

    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address that other nodes reach this machine at."), FOR_COORDINATOR
    ] = "127.0.0.1"
    mode: Annotated[
        JobMode, typer.Option(help="Who updates the parameters: servers, or each worker by all-reduced gradients.")
    ] = JobMode.PARAMETER_SERVERS
    transport: Annotated[
        TransportName, typer.Option(help="How tensors travel; auto: shared memory on one host, else TCP.")
    ] = TransportName.AUTO
    tcp_sockets: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=MOST_SOCKETS, help="Sockets of each TCP connection, each with a thread."),
    ] = 1
    optimizer_module: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="Module with update rules for servers.")
    ] = None
    join_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds to wait for nodes, or for the job."), FOR_COORDINATOR
    ] = 60.0
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Seconds that processes get to end in order.")
    ] = 30.0

    @property
    def all_reduces(self) -> bool:
        """Return whether the job has no servers."""
        return self.mode is JobMode.ALL_REDUCE

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that servers load update rules from."""
        return tuple(self.optimizer_module or ())

    @property
    def wire(self) -> TransportSettings:
        """Return how tensors travel."""
        return TransportSettings(self.transport, self.tcp_sockets)


@dataclass(frozen=True)
class JobSettings:
    """A `JobSettings` describes a job to run on this machine: what was given to `elasticrun`, as a whole.

    Attributes:
        script: what workers run.
        job: options of the job; its name and its identity are filled in.
        nodes: options of every node.
    """

    script: Script
    job: JobOptions = field(default_factory=JobOptions)
    nodes: NodesOptions = field(default_factory=NodesOptions)

    def for_coordinator(self) -> Iterator[str]:
        """Yield the arguments of `python -m coordinator` for the options that it has too, where they are given."""
        for group in (self.job, self.nodes):
            for name, value in _marked(group):
                if value is not None and value != "":
                    yield from (f"--{name.replace('_', '-')}", str(value))


def _marked(group: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a group's options that are for the coordinator."""
    for name, hint in get_type_hints(type(group), include_extras=True).items():
        if FOR_COORDINATOR in get_args(hint)[1:]:
            yield name, getattr(group, name)


_NEEDED = ("coordinator", "token_file")


_OF_SERVERS = {
    "servers": "leave it out",
    "replicas": "leave it out: every worker has all parameters",
    "block_bytes": "leave it out: nobody divides the parameters",
    "migration": "leave it out: no blocks move",
    "wrap_server": "leave it out",
    "optimizer_module": "leave it out: the script's own optimizer runs in each worker",
    "transport": "leave it out: gloo's own connections carry the sums",
    "tcp_sockets": "leave it out: gloo's own connections carry the sums",
}
"""Options that mean nothing to a job without servers, and what to do instead."""


def _given(context: typer.Context, names: Iterable[str]) -> set[str]:
    """Return those of some options that the command line has."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def serverless(context: typer.Context, nodes: NodesOptions, role: Role | None) -> str | None:
    """Return what was given and does not belong to a job without servers; None where all is well."""
    if not nodes.all_reduces:
        return None
    if role is Role.SERVER:
        return "--role server is for jobs with servers, and one of --mode all-reduce has none: join a worker"
    wrong = sorted(_given(context, _OF_SERVERS))
    if not wrong:
        return None
    option = f"--{wrong[0].replace('_', '-')}"
    return f"{option} is for jobs with servers, and one of --mode all-reduce has none: {_OF_SERVERS[wrong[0]]}"


def emptied(context: typer.Context, job: JobOptions) -> str | None:
    """Return which URL or name was given and is empty, as a shell's variable that is not set; None: none is.

    Without the option a job begins anew, or under another name, and nothing would say so.
    """
    said = {"checkpoint": job.checkpoint, "restore": job.restore, "name": job.name, "identity": job.identity}
    empty = sorted(name for name in _given(context, said) if not said[name].strip())
    if not empty:
        return None
    what = "URL" if empty[0] in ("checkpoint", "restore") else "text"
    return f"--{empty[0]}: an empty {what}: give one, or leave the option out (a variable of the shell may not be set)"


def misplaced(context: typer.Context, role: Role | None) -> str | None:
    """Return what was given and does not belong, or is missing, with or without --role; None where all is well."""
    of_a_job, of_a_node = ({field.name for field in fields(group)} for group in (JobOptions, NodeOptions))
    given = _given(context, of_a_job | of_a_node)
    wrong = sorted(given & (of_a_node if role is None else of_a_job))
    if wrong:
        option = f"--{wrong[0].replace('_', '-')}"
        where = "one node that --role joins to a job" if role is None else "a whole job, which --role does not start"
        return f"{option} is for {where}"
    missing = sorted(set(_NEEDED) - given) if role is not None else []
    return f"--role needs --{missing[0].replace('_', '-')}, of the job to join" if missing else None
