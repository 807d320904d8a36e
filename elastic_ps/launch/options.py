"""The options of `elasticrun`, by what they are for."""

import shlex
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from elastic_ps.core.configuration import MOST_NODES, Role
from elastic_ps.core.data_order import MOST_SEED
from elastic_ps.core.model import ALIGNMENT
from elastic_ps.launch.commands import Script
from elastic_ps.transport.choice import TransportName, TransportSettings
from elastic_ps.transport.striped import MOST_SOCKETS

_MOST_BLOCK_BYTES = 1 << 40


class Migration(StrEnum):
    """How blocks move to other servers."""

    LIVE = "live"
    PAUSE = "pause"


@dataclass(frozen=True)
class Program:
    """What is trained."""

    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="Training script, or with -m a module.", show_default=False)
    ] = ""
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Passed to the script untouched.")
    ] = None
    module: Annotated[bool, typer.Option("-m", help="Run SCRIPT as `python -m` does.")] = False

    def of_workers(self) -> Script | None:
        """What they run; None: there is none."""
        return Script(self.script, tuple(self.arguments or ()), self.module) if self.script else None


@dataclass(frozen=True)
class JobOptions:
    """Of a whole job."""

    workers: Annotated[int, typer.Option(metavar="N", min=1, max=MOST_NODES, help="Workers at the start.")] = 1
    servers: Annotated[int, typer.Option(metavar="N", min=1, max=MOST_NODES, help="Servers at the start.")] = 1
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the job; by default made from the script's.")] = ""
    max_restarts: Annotated[int, typer.Option(metavar="N", min=0, help="Dead processes that are replaced, in all.")] = 3
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=MOST_SEED, help="Of the order of the samples.")
    ] = None
    block_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=ALIGNMENT, max=_MOST_BLOCK_BYTES, help="Largest block of a tensor.")
    ] = None
    migration: Annotated[Migration | None, typer.Option(help="How blocks move to other servers.")] = None
    checkpoint: Annotated[
        str, typer.Option(metavar="URL", help="Folder of checkpoints, any fsspec URL [the job's folder].")
    ] = ""
    checkpoint_interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between checkpoints.")
    ] = None
    restore: Annotated[
        str, typer.Option(metavar="URL", help="Start from this checkpoint, or from the newest in this folder.")
    ] = ""
    identity: Annotated[
        str, typer.Option(metavar="TEXT", help="Of this training run, in its checkpoints; runs may go on as one [new].")
    ] = ""
    wrap_worker: Annotated[
        str, typer.Option(metavar="COMMAND", help="Program that runs each worker, as in 'nice -n 5'.")
    ] = ""
    wrap_server: Annotated[
        str, typer.Option(metavar="COMMAND", help="Program that runs each server, as in 'nice -n 5'.")
    ] = ""
    lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1.0, help="Seconds that a node may be silent [10].")
    ] = None

    def for_coordinator(self, join_timeout: float) -> tuple[str, ...]:
        """Those that were given, as the coordinator's command line has them."""
        values: dict[str, object] = {
            "seed": self.seed,
            "block-bytes": self.block_bytes,
            "migration": self.migration,
            "checkpoint-interval": self.checkpoint_interval,
            "restore": self.restore or None,
            "join-timeout": join_timeout,
            "lease": self.lease,
        }
        given = {f"--{name}": str(value) for name, value in values.items() if value is not None}
        return tuple(text for option in given.items() for text in option)

    @property
    def wraps(self) -> dict[Role, tuple[str, ...]]:
        """See `JobSettings`."""
        commands = {Role.WORKER: self.wrap_worker, Role.SERVER: self.wrap_server}
        return {role: tuple(shlex.split(command)) for role, command in commands.items() if command}


@dataclass(frozen=True)
class NodeOptions:
    """Of one node that joins a job."""

    role: Annotated[Role | None, typer.Option(help="Join one node to a running job.")] = None
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Of the job that --role joins.")] = ""
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the job that --role joins.")] = None
    nonce_prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="Names --role's processes PREFIX.1, PREFIX.2 [random].")
    ] = ""


@dataclass(frozen=True)
class NodesOptions:
    """Of every node, of a job or alone."""

    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address that other nodes reach this machine at.")] = (
        "127.0.0.1"
    )
    transport: Annotated[TransportName, typer.Option(help="Of tensors; auto: shared memory on one host, else TCP.")] = (
        TransportName.AUTO
    )
    tcp_sockets: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=MOST_SOCKETS, help="Sockets of each TCP connection, each with a thread."),
    ] = 1
    optimizer_module: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="Module with update rules for servers.")
    ] = None
    join_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds to wait for nodes, or for the job.")
    ] = 60.0
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Seconds that processes get to end in order.")
    ] = 30.0

    @property
    def modules(self) -> tuple[str, ...]:
        """That servers load update rules from."""
        return tuple(self.optimizer_module or ())

    @property
    def wire(self) -> TransportSettings:
        """Of tensors."""
        return TransportSettings(self.transport, self.tcp_sockets)


_NEEDED = ("coordinator", "token_file")


def misplaced(context: typer.Context, role: Role | None) -> str | None:
    """What was given, or is missing, with or without --role; None: nothing."""
    of_a_job, of_a_node = ({field.name for field in fields(group)} for group in (JobOptions, NodeOptions))
    sources = {name: context.get_parameter_source(name) for name in of_a_job | of_a_node}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    wrong = sorted(given & (of_a_node if role is None else of_a_job))
    if wrong:
        option = f"--{wrong[0].replace('_', '-')}"
        where = "one node that --role joins to a job" if role is None else "a whole job, which --role does not start"
        return f"{option} is for {where}"
    missing = sorted(set(_NEEDED) - given) if role is not None else []
    return f"--role needs --{missing[0].replace('_', '-')}, of the job to join" if missing else None
